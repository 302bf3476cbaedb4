"""Python expressions in commands: `{name}`, `{a + b}`, `$name`, each on its own, unlike IPython's."""

import re

from IPython.utils.text import FullEvalFormatter

_FORMATTER = FullEvalFormatter()
#: `$$name` is `$name` for the shell. `$1` and `$?` are the shell's.
_DOLLAR = re.compile(r"\$(\$?)([A-Za-z_][\w.]*)")


def expand(text, names):
    """The text with the values of its expressions. What cannot be evaluated stays as it is."""
    expanded = []
    at = 0
    quote = ""
    while at < len(text):
        piece, end = _next(text, at, names, is_quoted=quote == "'")
        if piece is None:
            end = at + 1
            piece = text[at]
            if piece in "'\"" and quote in ("", piece):
                quote = "" if quote else piece
            elif piece == "\\" and quote != "'":
                # The character that it protects; a field is expanded all the same, as in IPython.
                end += text[end : end + 1] in ("'", '"', "\\")
                piece = text[at:end]
        expanded.append(piece)
        at = end
    return "".join(expanded)


def _next(text, at, names, *, is_quoted):
    """What the expression that begins here becomes, and where it ends; None if none does."""
    if text[at] == "{":
        return _field(text, at, names)
    # A shell does not expand it in single quotes either: `awk '{print $1}'`.
    if text[at] == "$" and not is_quoted and (dollar := _DOLLAR.match(text, at)):
        if dollar[1]:
            return f"${dollar[2]}", dollar.end()
        return _value(f"{{{dollar[2]}}}", names), dollar.end()
    return None, at


def _field(text, at, names):
    end = _end_of_field(text, at)
    if end is None:
        return None, at
    is_escaped = text.startswith("{{", at) and text[end - 2 : end] == "}}" and _end_of_field(text, at + 1) == end - 1
    if is_escaped:
        return text[at + 1 : end - 1], end
    return _value(text[at:end], names), end


def _end_of_field(text, at):
    depth = 0
    for index in range(at, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return index + 1
    return None


def _value(field, names):
    # Names of Python's own would be in the way of `awk '{print}'`.
    if (name := field[1:-1].strip()).isidentifier() and name not in names:
        return None
    try:
        return _FORMATTER.vformat(field, [], names)
    except Exception:
        return None
