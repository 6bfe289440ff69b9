"""Authentication and access: users, tokens, certificates and rules, as they stand in one directory.

`authenticator.UserAuthenticator` decides, and touches neither files nor the clock.
`directory.SecurityDirectory` reads what it decides by. `users.UserLines` and `provision` do what
`tidings user` and `tidings security` ask for. Only `certificates` needs more than the bare install.
"""
