"""The program's first lines: an interrupt while modules are being loaded ends it without a traceback."""


def main() -> int:
    """Run the command line of this process; answers the exit code."""
    try:
        from dsh.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
