"""Bodies that the node never sees: what is put is got, what was changed is refused, keys come and go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import tidings
from client.nodes import node, run
from tidings import Event
from tidings.client import Bus, Queue
from tidings.client.encryption import (
    ENCRYPTED,
    FILE_SIZE_MAX,
    KEYS_MAX,
    VARIABLE,
    Keyring,
    QueueKeys,
    generate_key,
)
from tidings.client.put import SEGMENT_SIZE
from tidings.errors import (
    ConfigError,
    DecryptionError,
    MessageNotHeld,
    MissingExtra,
    QueueEmpty,
    QueueFull,
    TransactionLost,
    UserError,
)

SECRET = b"the secret that nobody else may see"
RING = Keyring([generate_key()])
OTHER = Keyring([generate_key()])

Work = Callable[[Bus, Queue], Awaitable[None]]


def with_queue(work: Work, **wish: Any) -> None:
    """Run a test with an encrypted queue called `jobs`."""

    async def within() -> None:
        async with tidings.open() as bus:
            await work(bus, await bus.create_queue("jobs", keys=RING, **wish))

    run(within())


def changed(event: Event, **fields: object) -> Event:
    """What someone in the middle might make of it."""
    return event.evolve(**fields)


# -- a body and back

texts = st.text(max_size=20)
events = st.builds(
    lambda kind, fields: Event(kind, **{name: value for name, value in fields.items() if value is not None}),
    st.sampled_from(["job", "order.new"]),
    st.fixed_dictionaries(
        {
            "body": st.none() | st.binary(max_size=200),
            "content_type": st.none() | texts | st.just(ENCRYPTED),
            "object_class": st.none() | texts,
            "subject": st.none() | texts,
            "n": st.none() | st.integers(0, 9),
        }
    ),
)


@given(events, texts)
def test_what_was_encrypted_is_decrypted(event: Event, queue: str) -> None:
    keys = QueueKeys(RING, queue)
    encrypted = keys.encrypt(event)
    assert encrypted.content_type == ENCRYPTED
    assert (encrypted.type, encrypted.values, encrypted.subject) == (event.type, event.values, event.subject)
    opened = keys.decrypt(encrypted)
    assert (opened.body, opened.content_type) == (event.body, event.content_type)
    assert replace(opened, header=None) == replace(event, header=None)
    assert keys.encrypt(event).body != encrypted.body


@given(events, st.data())
def test_any_byte_that_was_changed_is_found_out(event: Event, data: st.DataObject) -> None:
    keys = QueueKeys(RING, "jobs")
    encrypted = keys.encrypt(event)
    body = bytearray(encrypted.body or b"")
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DecryptionError, match="'jobs'"):
        keys.decrypt(replace(encrypted, body=bytes(body)))


def test_every_byte_of_a_body_matters() -> None:
    keys = QueueKeys(RING, "jobs")
    encrypted = keys.encrypt(Event("job", body=SECRET))
    body = encrypted.body or b""
    for at in range(len(body)):
        with pytest.raises(DecryptionError):
            keys.decrypt(replace(encrypted, body=body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]))
        with pytest.raises(DecryptionError):
            keys.decrypt(replace(encrypted, body=body[:at]))
    with pytest.raises(DecryptionError):
        keys.decrypt(replace(encrypted, body=body + b"\0"))


@given(st.binary(max_size=100))
def test_junk_is_no_encrypted_body(junk: bytes) -> None:
    with pytest.raises(DecryptionError):
        QueueKeys(RING, "jobs").decrypt(Event("job", body=junk, content_type=ENCRYPTED))


def test_something_else_that_was_encrypted_with_the_key_is_no_body() -> None:
    event = Event("job", content_type=ENCRYPTED)
    keys, said = QueueKeys(RING, "jobs"), b"\x93\xa4jobs\xa3job\xc0"
    for plain in (b"", b"\x01", b"\x92\x01\x02", b"\x92\xc0\xc0\xc0"):
        with pytest.raises(DecryptionError, match="no body is in it"):
            keys.decrypt(replace(event, body=RING.encrypt(plain, said)))


def test_a_body_can_not_be_moved_to_another_queue_type_or_class() -> None:
    keys = QueueKeys(RING, "jobs")
    encrypted = keys.encrypt(Event("job", body=SECRET, object_class="Invoice"))
    assert keys.decrypt(changed(encrypted, priority=9, color="blue")).body == SECRET
    for moved in (
        changed(encrypted, type="other"),
        changed(encrypted, object_class="Order"),
        changed(encrypted, object_class=None),
    ):
        with pytest.raises(DecryptionError, match="changed, or encrypted for another"):
            keys.decrypt(moved)
    with pytest.raises(DecryptionError, match="'orders'"):
        QueueKeys(RING, "orders").decrypt(encrypted)


def test_what_is_not_encrypted_is_refused() -> None:
    keys = QueueKeys(RING, "jobs")
    encrypted = keys.encrypt(Event("job", body=SECRET))
    for plain in (
        Event("job"),
        Event("job", body=SECRET),
        changed(encrypted, body=None),
        changed(encrypted, content_type=None),
    ):
        with pytest.raises(DecryptionError, match="queue 'jobs': the message is not encrypted"):
            keys.decrypt(plain)


def test_an_error_names_queue_and_key_and_can_be_pickled() -> None:
    with pytest.raises(DecryptionError) as caught:
        QueueKeys(OTHER, "jobs").decrypt(QueueKeys(RING, "jobs").encrypt(Event("job", body=SECRET)))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.queue, error.key) == ("jobs", RING.ids[0])
    assert str(error) == f"queue 'jobs': key {RING.ids[0]}: the ring does not have this key"


# -- keys


def test_the_last_key_encrypts_and_all_decrypt() -> None:
    old, new = generate_key(), generate_key()
    before, after = Keyring([old]), Keyring([old, new])
    job = Event("job", body=SECRET)
    of_old, of_new = (QueueKeys(ring, "jobs").encrypt(job) for ring in (before, after))
    assert [QueueKeys(after, "jobs").decrypt(each).body for each in (of_old, of_new)] == [SECRET, SECRET]
    assert QueueKeys(Keyring([new, old]), "jobs").decrypt(of_new).body == SECRET
    with pytest.raises(DecryptionError) as caught:
        QueueKeys(before, "jobs").decrypt(of_new)
    assert caught.value.key == after.ids[-1]


def test_a_key_that_is_given_twice_stands_where_it_is_last() -> None:
    one, two = generate_key(), generate_key()
    assert Keyring([one, two, one]).ids == Keyring([two, one]).ids


def test_two_rings_make_one() -> None:
    one, two, three = (generate_key() for _ in range(3))
    assert (Keyring([one, two]) | Keyring([three, one])).ids == Keyring([two, three, one]).ids


def test_a_ring_shows_ids_and_never_keys() -> None:
    key = generate_key()
    ring = Keyring([key])
    assert repr(ring) == f"<Keyring {ring.ids[0]}>"
    assert key not in repr(vars(ring))
    with pytest.raises(TypeError):
        pickle.dumps(ring)


def key_file(home: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path = home / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    one, two = generate_key(), generate_key()
    path = key_file(tmp_path, f"# of the printer\n{one}\n\n  {two}  # since spring\r\n")
    assert Keyring.from_file(path).ids == Keyring.from_file(str(path)).ids == Keyring([one, two]).ids


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = generate_key(), generate_key()
    monkeypatch.setenv(VARIABLE, f"{one}\n{two}")
    monkeypatch.setenv("PRINTER_KEYS", two)
    assert Keyring.from_environment().ids == Keyring([one, two]).ids
    assert Keyring.from_environment("PRINTER_KEYS").ids == Keyring([two]).ids
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigError, match=f"^{VARIABLE}: there is no key$"):
        Keyring.from_environment()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o666])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, generate_key(), mode)
    with pytest.raises(ConfigError, match=f"others may use it \\(mode {mode:o}\\); chmod 600"):
        Keyring.from_file(path)


@pytest.mark.parametrize(
    "bad", ["nonsense", "AAAA", "A" * 42, "A" * 43, "A" * 44, f"id:{'A' * 43}=", f"{'-' * 43}=", b"\xff\xfe"]
)
def test_a_line_that_is_no_key_is_named_and_not_shown(tmp_path: Path, bad: str | bytes) -> None:
    text = bad if isinstance(bad, bytes) else bad.encode()
    path = key_file(tmp_path, generate_key().encode() + b"\n" + text + b"\n")
    with pytest.raises(ConfigError) as caught:
        Keyring.from_file(path)
    assert str(caught.value) == f"{path}, line 2: is no key: 32 bytes in base64"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("text", ["", "\n\n", "# only words\n"])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="there is no key"):
        Keyring.from_file(key_file(tmp_path, text))


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        Keyring.from_file(tmp_path / "none")
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        Keyring.from_file(tmp_path)
    with pytest.raises(ConfigError, match="more than"):
        Keyring.from_file(key_file(tmp_path, "#" * (FILE_SIZE_MAX + 1)))


def test_a_ring_has_a_key_and_not_too_many() -> None:
    with pytest.raises(ConfigError, match="there is no key"):
        Keyring([])
    with pytest.raises(ConfigError, match="key 2: is no key"):
        Keyring([generate_key(), ""])
    with pytest.raises(ConfigError, match=f"at most {KEYS_MAX} keys"):
        Keyring(generate_key() for _ in range(KEYS_MAX + 1))


# -- without the library


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tidings\[encryption\]'"):
        Keyring([generate_key()])


def test_the_client_does_without_the_library_until_there_are_keys() -> None:
    code = """
import sys
sys.modules["cryptography"] = None
import tidings
from tidings.client.encryption import generate_key
with tidings.blocking.open() as bus:
    queue = bus.create_queue("jobs")
    queue.put("job", body=b"x")
    print(queue.get().body, len(generate_key()))
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("b'x' 44\n", "")


# -- queues


def test_all_ways_of_getting_decrypt() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        job = Event("job", body=SECRET, content_type="text/plain")
        await queue.put("job", body=SECRET, content_type="text/plain")
        await queue.put_all([job] * 4)
        await queue.put("job", body=SECRET, content_type="text/plain")
        read = [await queue.read(), *await queue.read_all()]
        assert {(each.body, each.content_type) for each in read} == {(SECRET, "text/plain")}
        got = [await queue.get()]
        async with queue.take() as message:
            got.append(message)
        async with queue.messages() as messages:
            got += [await anext(messages), await anext(messages)]
        got += await queue.get_all()
        assert [(each.body, each.content_type) for each in got] == [(SECRET, "text/plain")] * 6
        assert await queue.is_empty()

    with_queue(work)


def test_headers_and_attributes_are_in_clear_and_can_be_searched() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        await queue.put("job", color="red", body=b"red")
        await queue.put("job", color="blue", body=b"blue", priority=7)
        (header,) = await queue.headers("color = 'blue'")
        assert (header.body, header.content_type, header.priority) == (None, ENCRYPTED, 7)
        assert (await queue.get("priority = 7")).body == b"blue"
        assert (await queue.get({"color": "red"})).body == b"red"

    with_queue(work)


def test_a_message_without_a_body_is_encrypted_too() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=1)
        assert (await (await bus.queue("jobs")).read()).content_type == ENCRYPTED
        message = await queue.get()
        assert (message.body, message.content_type, message["n"]) == (None, None, 1)

    with_queue(work)


@pytest.mark.parametrize("size", [SEGMENT_SIZE - 60, SEGMENT_SIZE, SEGMENT_SIZE + 1, 3 * SEGMENT_SIZE])
def test_a_long_body_is_encrypted_whole(size: int) -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        body = os.urandom(size)
        await queue.put("film", body=body)
        await queue.put_all([Event("film", body=body)])
        assert (await queue.read()).body == body
        plain = await (await bus.queue("jobs")).read()
        assert body[:100] not in (plain.body or b"")
        assert [message.body for message in await queue.get_all()] == [body, body]

    with_queue(work)


def test_a_transaction_encrypts_and_decrypts_when_it_is_given_the_queue() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with bus.transaction() as tx:
            await tx.put(queue, "job", body=SECRET)
            await tx.put_all(queue, [Event("job", body=SECRET)])
            assert (await tx.read(queue)).body == SECRET
            assert (await tx.get(queue)).body == SECRET
        assert (await (await bus.queue("jobs")).read()).content_type == ENCRYPTED
        assert [message.body for message in await queue.get_all()] == [SECRET]

    with_queue(work)


def test_what_was_refused_is_left_as_it_was_given() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        jobs = [Event("job", n=n, body=SECRET) for n in range(5)]
        with pytest.raises(QueueFull) as caught:
            await queue.put_all(jobs)
        assert vars(caught.value)["left"] == jobs[2:]

    with_queue(work, max_messages=2)


def test_a_queue_has_the_same_keys_by_all_its_names() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await bus.create_alias("print", "jobs")
        names = ("print", queue.description.id, f"jobs@{(await bus.status())['node']}")
        for name in names:
            await (await bus.queue(name, keys=RING)).put("job", body=SECRET)
        assert [message.body for message in await queue.get_all()] == [SECRET] * 3

    with_queue(work)


def test_a_watch_brings_copies_that_can_be_decrypted() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with queue.watch() as copies:
            await queue.put("job", body=SECRET)
            copy = await anext(copies)
        assert copy.content_type == ENCRYPTED
        assert queue.decrypt(copy).body == SECRET
        with pytest.raises(UserError, match="without keys"):
            (await bus.queue("jobs")).decrypt(copy)

    with_queue(work)


def test_keys_change_while_messages_wait() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put("job", body=b"old")
        both = await bus.queue("jobs", keys=RING | OTHER)
        await both.put("job", body=b"new")
        assert [event.body for event in await both.read_all()] == [b"old", b"new"]
        assert (await queue.get()).body == b"old"
        with pytest.raises(DecryptionError):
            await queue.get()
        assert (await (await bus.queue("jobs", keys=OTHER)).get()).body == b"new"

    with_queue(work)


# -- what can't be decrypted stays


async def put_badly(bus: Bus) -> None:
    """Put a message that the queue's key does not open."""
    await (await bus.queue("jobs", keys=OTHER)).put("job", body=b"bad", bad=True)


async def take_one(queue: Queue) -> None:
    async with queue.take(timeout_s=0):
        raise AssertionError


async def loop_once(queue: Queue) -> None:
    async with queue.messages() as messages:
        await anext(messages)


WAYS: dict[str, Callable[[Queue], Awaitable[object]]] = {
    "get": lambda queue: queue.get(timeout_s=0),
    "get_all": lambda queue: queue.get_all(),
    "take": take_one,
    "messages": loop_once,
    "read": lambda queue: queue.read(),
    "read_all": lambda queue: queue.read_all(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_can_not_be_decrypted_is_not_acknowledged(way: str) -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await put_badly(bus)
        with pytest.raises(DecryptionError) as caught:
            await WAYS[way](queue)
        assert (caught.value.queue, caught.value.key) == ("jobs", OTHER.ids[0])
        message = await (await bus.queue("jobs", keys=OTHER)).get(timeout_s=60)
        assert (message.body, message.deliveries) == (b"bad", 1 if way.startswith("read") else 2)

    with_queue(work)


def test_those_that_come_with_one_that_can_not_be_decrypted_do_not_suffer() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put("job", n=0)
        await put_badly(bus)
        await queue.put("job", n=2)
        with pytest.raises(DecryptionError):
            await queue.get_all()
        messages = await queue.get_all("bad IS NULL")
        assert [(message["n"], message.deliveries) for message in messages] == [(0, 1), (2, 1)]

    with_queue(work)


def test_of_several_pages_with_one_that_can_not_be_decrypted_none_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidings.client.queue.PAGE", 2)

    async def work(bus: Bus, queue: Queue) -> None:
        await queue.put_all(Event("job", n=n) for n in range(3))
        await put_badly(bus)
        with pytest.raises(DecryptionError):
            await queue.get_all()
        messages = await queue.get_all("bad IS NULL")
        assert [(message["n"], message.deliveries) for message in messages] == [(0, 1), (1, 1), (2, 1)]

    with_queue(work)


def test_a_loop_goes_on_behind_one_that_can_not_be_decrypted() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await put_badly(bus)
        await queue.put("job", n=1)
        async with queue.messages() as messages:
            with pytest.raises(DecryptionError):
                await anext(messages)
            assert (await anext(messages))["n"] == 1

    with_queue(work)


def test_one_that_can_never_be_decrypted_is_a_dead_letter_in_the_end() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        await put_badly(bus)
        for _ in range(2):
            with pytest.raises(DecryptionError):
                await queue.get(timeout_s=0)
        with pytest.raises(QueueEmpty):
            await queue.get(timeout_s=0)
        dead = await bus.queue("tidings.dead", keys=OTHER)
        assert (await dead.get(timeout_s=0)).body == b"bad"

    with_queue(work, deliveries_max=2)


def test_a_transaction_that_got_one_that_can_not_be_decrypted_does_not_commit() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async def within() -> None:
            async with bus.transaction() as tx:
                await tx.put(queue, "done")
                with contextlib.suppress(DecryptionError):
                    await tx.get(queue, "bad = TRUE")

        await put_badly(bus)
        with pytest.raises(TransactionLost):
            await within()
        (header,) = await queue.headers()
        assert header["bad"]

    with_queue(work)


def test_a_plain_message_in_an_encrypted_queue_is_refused_and_stays() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        plain = await bus.queue("jobs")
        await plain.put("job", body=b"from someone without a key")
        with pytest.raises(DecryptionError, match="not encrypted"):
            await queue.get()
        assert (await plain.get()).body == b"from someone without a key"

    with_queue(work)


# -- dead letters


def test_dead_letters_decrypt_and_so_do_those_that_go_back() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        body = SECRET * (SEGMENT_SIZE // len(SECRET) + 1)
        await queue.put("job", body=body, content_type="text/plain")
        async with queue.take() as message:
            await message.reject("no paper")
        dead = await bus.queue("tidings.dead", keys=RING)
        letter = await dead.read()
        assert (letter["dead.queue"], letter.body == body) == ("jobs", True)
        assert await bus.replay_dead() == 1
        message = await queue.get(timeout_s=0)
        assert (message.body == body, message.content_type) == (True, "text/plain")

    with_queue(work)


def test_a_dead_letter_that_goes_elsewhere_does_not_decrypt_there() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        other = await bus.create_queue("other", keys=RING)
        await queue.put("job", body=SECRET)
        async with queue.take() as message:
            await message.reject()
        assert await bus.replay_dead(queue="other") == 1
        with pytest.raises(DecryptionError, match=r"'other'.*another queue"):
            await other.get()

    with_queue(work)


def test_a_dead_letter_can_not_lie_about_where_it_came_from() -> None:
    encrypted = QueueKeys(RING, "jobs").encrypt(Event("job", body=SECRET))
    dead = QueueKeys(RING, "tidings.dead")
    assert dead.decrypt(changed(encrypted, dead={"queue": "jobs"})).body == SECRET
    for lie in (encrypted, changed(encrypted, dead={"queue": "orders"})):
        with pytest.raises(DecryptionError):
            dead.decrypt(lie)


def test_what_is_put_among_the_dead_letters_by_hand_decrypts() -> None:
    dead = QueueKeys(RING, "tidings.dead")
    assert dead.decrypt(dead.encrypt(Event("job", body=SECRET))).body == SECRET


# -- what the node sees


class Tap:
    """Carries bytes between a client and a node, and keeps them."""

    def __init__(self, home: Path) -> None:
        self.seen = bytearray()
        self._home = home

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_unix_server(self._serve, self._home / "tap")
        try:
            yield f"tidings+unix://{self._home / 'tap'}"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._home / "socket")
        await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self.seen += data
            writer.write(data)
        writer.close()


async def seen_by_the_node(home: Path, keys: Keyring | None) -> tuple[bytes, bytes]:
    """What goes over the wire and what lies on the disk, of messages put, got and rejected."""
    tap = Tap(home)
    async with node(home), tap.running() as address, tidings.connect(address) as bus:
        queue = await bus.create_queue("jobs", keys=keys, persistent=True)
        await queue.put("job", {"clear": "an attribute"}, body=SECRET, content_type="text/secret")
        await queue.put_all([Event("job", body=SECRET * 40_000, content_type="text/secret")])
        assert (await queue.read()).body == SECRET
        async with queue.take() as message:
            await message.reject("bad")
    stored = b"".join(path.read_bytes() for path in (home / "store").rglob("*") if path.is_file())
    return bytes(tap.seen), stored


def test_the_node_never_sees_a_body_or_its_content_type(tmp_path: Path) -> None:
    for seen in run(seen_by_the_node(tmp_path, RING)):
        assert SECRET not in seen
        assert b"text/secret" not in seen
        assert b"an attribute" in seen
        assert ENCRYPTED.encode() in seen


def test_without_keys_it_would_see_them(tmp_path: Path) -> None:
    for seen in run(seen_by_the_node(tmp_path, None)):
        assert SECRET in seen
        assert b"text/secret" in seen


def test_what_was_stored_decrypts_after_a_restart(tmp_path: Path) -> None:
    async def put_and_get() -> None:
        async with tidings.open(tmp_path / "store") as bus:
            await (await bus.create_queue("jobs", keys=RING)).put("job", body=SECRET)
        async with tidings.open(tmp_path / "store") as bus:
            assert (await (await bus.queue("jobs", keys=RING)).get(timeout_s=0)).body == SECRET

    run(put_and_get())


# -- without await


def test_queues_without_await_have_keys_too() -> None:
    with tidings.blocking.open() as bus:
        queue = bus.create_queue("jobs", keys=RING)
        queue.put("job", body=SECRET)
        queue.put_all([Event("job", body=SECRET)] * 3)
        assert bus.queue("jobs").read().content_type == ENCRYPTED
        assert bus.queue("jobs", keys=RING).read().body == SECRET
        with bus.transaction() as tx:
            assert tx.get(queue).body == SECRET
        with queue.take() as message:
            assert message.body == SECRET
        with queue.messages() as messages:
            assert next(iter(messages)).body == SECRET
        with pytest.raises(DecryptionError):
            bus.queue("jobs", keys=OTHER).get()
        message = queue.get()
        assert message.body == SECRET
        with pytest.raises(MessageNotHeld):
            message.acknowledge()
        with queue.watch() as copies:
            queue.put("job", body=SECRET)
            assert queue.decrypt(next(iter(copies))).body == SECRET


def test_a_queue_that_is_named_later_keeps_its_keys() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async with bus.transaction() as tx:
            await tx.put("jobs", "job", body=SECRET)
        await (await bus.create_alias("work", "jobs")).put("job", body=SECRET)
        assert [message.body for message in await queue.get_all()] == [SECRET] * 2

    with_queue(work)


def test_a_worker_goes_on_after_messages_that_it_can_t_decrypt(caplog: pytest.LogCaptureFixture) -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        other = await bus.queue("jobs", keys=OTHER)
        await other.put("job", body=b"strange")
        await queue.put("job", body=SECRET)
        done: list[bytes | None] = []
        outcomes = await queue.work(lambda job: done.append(job.body), pause_s=0, timeout_s=0)
        assert (done, outcomes) == ([SECRET], (1, 2, 0))
        assert (await (await bus.queue("tidings.dead")).describe()).messages == 1

    with_queue(work, deliveries_max=2)
    assert [text.startswith("handler <lambda> gets no message: ") for text in caplog.messages] == [True] * 2
