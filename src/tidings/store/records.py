"""Rows of the database: the contents of each table, and the checksum that every row carries.

A row is its key, the checksum, then the fields; everything is an integer, bytes or NULL, so that the check
covers exactly the bytes on the disk. The checksum is a CRC-32 over the name of the table, the key and all
fields: it exposes a row that was changed, moved to another key or put into another table.

Each batch of the stream also says where its predecessors ended: `previous`, the last position before it, and
`kept`, the last position before it that is persistent. So a reader notices that a row between two others is
gone, which the checksums of the others can't show, and does not take trimmed batches for lost ones.

All other tables are protected by sums: the head has the sum of the checksums of each of them, so a row that
is gone, is older than it was or has come back is noticed, though no other row knows of it.

A row may be long and most of it seldom read. Then its last column, the *content*, has a checksum of its own
before it: the rest of the row is read and checked without it.
"""

from __future__ import annotations

import zlib
from typing import Any, cast

import msgspec
from msgspec import Struct

from tidings.store.interface import Counter, Durable, QueueRecord, SetRecord, StoredBatch

FORMAT = 3  # the second has rows in place of batches that lie elsewhere, the third has records
SUM_MASK = 2**32 - 1

Field = int | bytes | None
Row = tuple[Field, ...]
RecordKey = tuple[str, Field, Field]
"""Table and unique key in it: owner and name, system and epoch, kind and key, or a queue's own key."""

_ELSEWHERE = -1  # an epoch that no batch has

_RELAYED = b"\xc1"  # before the source and provenance of relayed events; no text begins with this byte

_LONG = 1 << 10  # bytes that are worth not being copied; at least 256, below which msgpack has another head
_NO_BYTES = b"\xc4\0"  # no bytes as msgpack

_encode = msgspec.msgpack.Encoder().encode
_decode_relayed = msgspec.msgpack.Decoder(tuple[str | None, bytes]).decode


class TableSchema(Struct, frozen=True):
    """Table with its name, its key and its other columns."""

    name: str
    key: str
    columns: tuple[str, ...]
    has_content: bool = False  # the last column is covered by the one before it, not by the row's checksum

    @property
    def schema(self) -> str:
        """Statement that creates it, as SQLite keeps it; no index, which might contradict the rows."""
        columns = ", ".join((f"{self.key} INTEGER PRIMARY KEY", "checksum INT NOT NULL", *self.columns))
        return f"CREATE TABLE {self.name} ({columns}) STRICT"

    @property
    def width(self) -> int:
        """Number of values in a row."""
        return len(self.columns) + 2

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all values of a row."""
        return (self.key, "checksum", *(column.split()[0] for column in self.columns))

    @property
    def put(self) -> str:
        """Statement that writes a row, replacing one with the same key."""
        return f"INSERT OR REPLACE INTO {self.name} VALUES ({', '.join('?' * self.width)})"


# Both of these have one row with the node's name: a lost page takes only one of them with it.
META = TableSchema("meta", "id", ("format INT", "node BLOB", "boot INT"))
HEAD = TableSchema(
    "head",
    "id",
    (
        "node BLOB",
        "boot INT",
        "commits INT",
        "position INT",
        "last INT",
        "kept INT",
        "trimmed INT",
        "latest_us INT",
        "durables INT",
        "counters INT",
        "queues INT",
        "run INT",
        "runs INT",
        "settled INT",
        "records INT",
    ),
)
HEAD_BEFORE = TableSchema(HEAD.name, HEAD.key, HEAD.columns[:-1])  # up to format 2
DURABLE = TableSchema(
    "durable",
    "id",
    ("changed INT", "owner BLOB", "name BLOB", "filter BLOB", "cursor INT", "handed INT", "options BLOB"),
)
COUNTER = TableSchema(
    "counter",
    "id",
    ("changed INT", "system BLOB", "epoch INT", "counter INT", "seen_us INT", "refused BLOB"),
)
STREAM = TableSchema(
    "stream",
    "first",
    (
        "count INT",
        "persistent INT",
        "previous INT",
        "kept INT",
        "stored_us INT",
        "latest_us INT",
        "epoch INT",
        "system BLOB",
        "source BLOB",
        "raw BLOB",  # last, so that the columns before it are read without it
    ),
)
QUEUE = TableSchema("queue", "id", ("changed INT", "name BLOB", "handed INT", "description BLOB"))
# Messages, many to a row, and the set of those that are gone; `runs` describes the columns.
RUN = TableSchema(
    "run",
    "id",
    ("changed INT", "packing INT", "numbers BLOB", "content_checksum INT", "content BLOB"),
    has_content=True,
)
SETTLED = TableSchema("settled", "id", ("changed INT", "gone BLOB"))
RECORD = TableSchema("record", "id", ("changed INT", "kind BLOB", "key BLOB", "value BLOB"))
TABLES = (META, HEAD, DURABLE, COUNTER, STREAM, QUEUE, RUN, SETTLED, RECORD)
TABLES_BEFORE = (META, HEAD_BEFORE, *TABLES[2:-1])
ONLY_ROW = 1


def tables_of(version: int) -> tuple[TableSchema, ...]:
    """Return the tables of a database of that format."""
    return TABLES if version >= FORMAT else TABLES_BEFORE


class Meta(Struct, frozen=True):
    """Owner of the store; written when it is opened."""

    node: str
    boot: int
    format: int = FORMAT


class StoreHead(Struct, frozen=True):
    """State of the store; written with every commit."""

    node: str
    boot: int
    commits: int = 0
    position: int = 0  # no event will ever be stored at or below it
    last: int = 0  # end of the last batch that was stored
    kept: int = 0  # end of the last persistent one
    trimmed: int = 0  # batches up to here are gone unless they are persistent
    latest_us: int = 0  # the highest `stored_us` so far
    durables: int = 0  # the sum of the checksums of all durables: none is missing, none is stale
    counters: int = 0  # the same for the counters
    queues: int = 0  # and for the queues
    run: int = 0  # the highest key that a run ever had
    runs: int = 0  # the sum of the checksums of all runs
    settled: int = 0  # and of all rows that say which of their messages are gone
    records: int = 0  # and of all records


class StreamLink(Struct, frozen=True, gc=False):
    """Batch in the stream, and the ends of those before it."""

    batch: StoredBatch
    previous: int
    kept: int
    latest_us: int  # the highest `stored_us` up to this batch: grows even if the clock was set back

    @property
    def last(self) -> int:
        """Position of its last event."""
        return self.batch.first + self.batch.count - 1

    @property
    def is_elsewhere(self) -> bool:
        """Whether it only replaces batches that were discarded: see `elsewhere`."""
        return self.batch.epoch == _ELSEWHERE


def elsewhere(position: int) -> StreamLink:
    """Return the record that replaces all batches up to the position, so that none is missed."""
    return StreamLink(StoredBatch(1, position, None, _ELSEWHERE, None, 0, True, b""), 0, 0, 0)


def is_gap(follower: StreamLink | StoreHead, last: int, trimmed: int) -> bool:
    """Whether something is missing between a batch that ended at `last` and the one (or the end) after it."""
    previous = follower.previous if isinstance(follower, StreamLink) else follower.last
    return follower.kept > last or previous > max(last, trimmed)


def sealed(table: TableSchema, key: int, fields: Row) -> Row:
    """Return the row with its checksum, and its content with one of its own if it has any."""
    if table.has_content:
        *fields_before, content = fields
        fields = (*fields_before, zlib.crc32(cast(bytes, content)))
        return (key, _checksum(table, key, fields), *fields, content)
    return (key, _checksum(table, key, fields), *fields)


def is_sound(table: TableSchema, row: Row) -> bool:
    """Whether the row, except its content, is as it was written; it may hold anything."""
    if len(row) != table.width:
        return False
    return _checksum(table, row[0], row[2:-1] if table.has_content else row[2:]) == row[1]


def is_whole(row: Row) -> bool:
    """Whether the content of a sound row is as it was written too."""
    content = row[-1]
    return isinstance(content, bytes) and zlib.crc32(content) == row[-2]


def _checksum(table: TableSchema, key: Field, fields: Row) -> int:
    """Return the CRC-32 of the table's name, the key and the fields as a msgpack array.

    This is on the hot path of reading the stream: a last field that is long is not copied for it.
    """
    last = fields[-1]
    if type(last) is not bytes or len(last) < _LONG:
        return zlib.crc32(_encode((table.name, key, *fields)))
    front = _encode((table.name, key, *fields[:-1], b""))[: -len(_NO_BYTES)]
    size = len(last)
    head = b"\xc5" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xc6" + size.to_bytes(4, "big")
    return zlib.crc32(last, zlib.crc32(front + head))


def checksum_of(row: Row) -> int:
    """Return the checksum that a sound row carries."""
    return cast(int, row[1])


def changed_in(row: Row) -> int:
    """Return the number of the commit that wrote a sound row, in tables that have it."""
    return cast(int, row[2])


def meta_row(meta: Meta) -> Row:
    """Return a row for META."""
    return sealed(META, ONLY_ROW, (meta.format, meta.node.encode(), meta.boot))


def head_row(head: StoreHead, table: TableSchema = HEAD) -> Row:
    """Return a row for HEAD, or for the one before it."""
    node, *numbers = msgspec.structs.astuple(head)
    return sealed(table, ONLY_ROW, (node.encode(), *numbers[: len(table.columns) - 1]))


def key_of(table: TableSchema, row: Row) -> RecordKey:
    """Return the unique key of a row of the tables that are protected by sums."""
    return (table.name, None, row[0]) if table is QUEUE else (table.name, row[3], row[4])


def durable_fields(changed: int, durable: Durable) -> Row:
    """Return the fields of a row for DURABLE; `changed` is the number of the commit."""
    texts = durable.owner.encode(), durable.name.encode(), durable.filter.encode()
    return (changed, *texts, durable.cursor, durable.handed, durable.options)


def counter_fields(changed: int, counter: Counter) -> Row:
    """Return the fields of a row for COUNTER."""
    return changed, counter.system.encode(), counter.epoch, counter.counter, counter.seen_us, counter.refused


def record_fields(changed: int, record: SetRecord) -> Row:
    """Return the fields of a row for RECORD."""
    return changed, record.kind.encode(), record.key.encode(), record.value


def stream_row(link: StreamLink) -> Row:
    """Return a row for STREAM."""
    batch = link.batch
    system = None if batch.system is None else batch.system.encode()
    source = None if batch.source is None else batch.source.encode()
    if batch.provenance:
        source = _RELAYED + _encode((batch.source, batch.provenance))
    before = int(batch.persistent), link.previous, link.kept
    fields = batch.count, *before, batch.stored_us, link.latest_us, batch.epoch, system, source, batch.raw
    return sealed(STREAM, batch.first, fields)


def queue_row(changed: int, queue: QueueRecord) -> Row:
    """Return a row for QUEUE; `changed` is the number of the commit."""
    return sealed(QUEUE, queue.key, (changed, queue.name.encode(), queue.handed, queue.description))


def meta_of(row: Row) -> Meta:
    """Decode a sound row of META."""
    _, _, version, node, boot = cast("tuple[int, int, int, bytes, int]", row)
    return Meta(node.decode(), boot, version)


def head_of(row: Row) -> StoreHead:
    """Decode a sound row of HEAD, or of the one before it."""
    return StoreHead(cast(bytes, row[2]).decode(), *cast("tuple[int, ...]", row[3:]))


def durable_of(row: Row) -> Durable:
    """Decode a sound row of DURABLE."""
    owner, name, text = (cast(bytes, field).decode() for field in row[3:6])
    return Durable(name, owner, text, *cast("tuple[int, int, bytes]", row[6:]))


def counter_of(row: Row) -> Counter:
    """Decode a sound row of COUNTER."""
    return Counter(cast(bytes, row[3]).decode(), *cast("tuple[int, int, int, bytes]", row[4:]))


def queue_of(row: Row) -> QueueRecord:
    """Decode a sound row of QUEUE."""
    key, _, _, name, handed, description = cast("tuple[int, int, int, bytes, int, bytes]", row)
    return QueueRecord(key, name.decode(), handed, description)


def record_of(row: Row) -> SetRecord:
    """Decode a sound row of RECORD."""
    kind, key, value = cast("tuple[bytes, bytes, bytes]", row[3:])
    return SetRecord(kind.decode(), key.decode(), value)


def link_of(row: Row) -> StreamLink:
    """Decode a sound row of STREAM."""
    values: Any = row
    first, _, count, persistent, previous, kept, stored_us, latest_us, epoch, system, written, raw = values
    source, provenance = _source_of(written)
    batch = StoredBatch(
        first,
        count,
        None if system is None else system.decode(),
        epoch,
        source,
        stored_us,
        bool(persistent),
        raw,
        provenance,
    )
    return StreamLink(batch, previous, kept, latest_us)


def _source_of(written: bytes | None) -> tuple[str | None, bytes]:
    """Decode the column `source`: the source of events, and which node took them in if it was another one."""
    if written is None:
        return None, b""
    if written.startswith(_RELAYED):
        return _decode_relayed(written[len(_RELAYED) :])
    return written.decode(), b""
