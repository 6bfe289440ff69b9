"""Passwords in settings, masked where settings are shown.

No setting should have one: most are refused with the reason when they are used. But what is shown is copied
into tickets and logs, so it is masked there whether or not it would be refused.
"""

from __future__ import annotations

import re

MASK = r"\g<before>***"

# postgresql://ada:SECRET@db?sslpassword=SECRET, s3://log?secret_key=SECRET
# A password that has @ or / in it should have them encoded, and is no less secret if it has not.
_SECRET = r"(?:(?:(?!://)[^?\s])*|[^/\s]*)(?=@)"
_USER = re.compile(rf"(?P<before>://[^:@/?#\s]*:){_SECRET}")
_WORDS = "password|secret|token|key|sig"
_QUERY = re.compile(rf"(?P<before>[?&][^=&\s]*(?:{_WORDS})[^=&\s]*=)[^&\s]*", re.IGNORECASE)
# password=SECRET, sslpassword = 'SEC RET', as libpq reads it
_VALUE = r"(?:'(?:\\.|[^'\\])*'?|(?:\\.|\S)+)"
_CONNINFO = re.compile(rf"(?P<before>password\s*=\s*){_VALUE}", re.IGNORECASE | re.DOTALL)


def masked(text: str) -> str:
    """The text with `***` in the place of every password that it seems to have."""
    if "://" in text:
        return _QUERY.sub(MASK, _USER.sub(MASK, text))
    return _CONNINFO.sub(MASK, text)
