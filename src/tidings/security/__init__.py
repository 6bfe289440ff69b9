"""Authentication and access: users, tokens, certificates and rules, as they stand in one directory.

`authenticator.UserAuthenticator` decides, and touches neither files nor the clock.
`directory.SecurityDirectory` reads the files that it decides by. `users.UserLines` and `provision` implement
`tidings user` and `tidings security`. Only `certificates` needs more than the bare install.
"""
