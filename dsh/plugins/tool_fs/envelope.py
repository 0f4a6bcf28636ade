"""The frame around a file's content. Its lines are protocol: display code finds the content by them."""


def envelope(path: str, content: str) -> str:
    """`content` as the body of the frame for `path`."""
    return f"<path>{path}</path>\n<type>file</type>\n<content>\n{content}\n</content>"
