"""Every error is caught by the one base, and request errors say which field is at fault."""

import inspect

from slipstream.base import errors


def test_every_error_belongs_to_the_tree() -> None:
    classes = [value for _, value in inspect.getmembers(errors, inspect.isclass) if value.__module__ == errors.__name__]
    assert len(classes) >= 10
    assert all(issubclass(one, errors.SlipstreamError) for one in classes)


def test_the_docstring_draws_every_class() -> None:
    for name, value in inspect.getmembers(errors, inspect.isclass):
        if value.__module__ == errors.__name__:
            assert name in (errors.__doc__ or ""), name


def test_a_request_error_names_its_field() -> None:
    error = errors.UnsupportedFeature("no", param="tools", code="unsupported")
    assert (error.param, error.code, str(error)) == ("tools", "unsupported", "no")


def test_an_overload_says_when_to_come_back() -> None:
    assert errors.OverloadedError("full", retry_after_s=7).retry_after_s == 7
