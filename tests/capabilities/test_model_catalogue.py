"""What several sources say of a model, laid over one another."""

from dsh.capabilities.model_catalogue import known_of
from dsh.capabilities.model_facts import NO_FACTS, ModelFacts, layered
from dsh.session.projection.price import Price

DEAR, CHEAP = Price(input=9, output=9), Price(input=1, output=1)


class Catalogue:
    """A catalogue of one route and one vendor's model, which counts how often it is asked."""

    def __init__(self, configured: ModelFacts | None, shipped: ModelFacts | None) -> None:
        self._configured, self._shipped = configured, shipped
        self.looked_up: list[str] = []

    def configured(self, provider: str, model: str) -> ModelFacts | None:
        return self._configured if (provider, model) == ("route", "m") else None

    def shipped(self, vendor: str, model: str) -> ModelFacts | None:
        self.looked_up.append(f"{vendor}/{model}")
        return self._shipped if (vendor, model) == ("acme", "m") else None


def test_of_each_fact_the_first_source_that_says_it_counts() -> None:
    found = layered(None, ModelFacts(name="A"), ModelFacts(name="B", context_window=7), None)
    assert found == ModelFacts(name="A", context_window=7)
    assert layered() == layered(None, None) == NO_FACTS


def test_settings_come_before_the_row_and_the_row_before_what_ships() -> None:
    catalogue = Catalogue(
        ModelFacts(price=DEAR), ModelFacts(price=CHEAP, context_window=1, max_output_tokens=3)
    )

    found = known_of(catalogue, "route", "m", row=ModelFacts(context_window=2), vendor="acme")

    assert found == ModelFacts(price=DEAR, context_window=2, max_output_tokens=3)


def test_away_from_the_vendor_its_limits_hold_and_its_prices_do_not() -> None:
    catalogue = Catalogue(None, ModelFacts(price=CHEAP, context_window=1))

    found = known_of(catalogue, "route", "m", vendor="acme", is_vendor_endpoint=False)

    assert found == ModelFacts(context_window=1)


def test_without_a_vendor_nothing_that_ships_is_looked_at() -> None:
    catalogue = Catalogue(None, ModelFacts(context_window=1))

    assert known_of(catalogue, "route", "m") == NO_FACTS
    assert catalogue.looked_up == []


def test_without_a_catalogue_the_row_alone_counts() -> None:
    row = ModelFacts(name="M")
    assert known_of(None, "route", "m", row=row, vendor="acme") == row
    assert known_of(None, "route", "m", vendor="acme") == NO_FACTS
