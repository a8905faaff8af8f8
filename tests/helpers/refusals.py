"""Calls that are to be refused, for tests with a list of them."""


def refusal(error, function, *arguments, **options):
    """The text of the error that a call ends with, empty where it ends without one."""
    try:
        function(*arguments, **options)
    except error as raised:
        return str(raised)
    return ""
