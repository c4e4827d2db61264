// Package ingest is an ingest engine for PostgreSQL: it follows a database by
// logical replication (the pgoutput plugin) and publishes what changed to every
// lane of a [flusso.Stream]. [Open] finds or makes the publication and the
// slot, [Source.Run] is the engine.
//
// # Documents
//
// A document is a row as a JSON object, its columns in the table's order: numbers
// as numbers, booleans, JSON as it is, arrays as arrays, everything else in Postgres'
// own text form. Generated columns are not in it, since the change feed does not
// carry them. The index is schema.table, the id the columns of the replica
// identity (the primary key, where nothing else was said) joined by commas; both
// are percent-escaped where needed. Partitions belong to the table they are part of.
//
// A table without a usable key is left out, and named in the log.
//
// # Positions
//
// A transaction is one batch, or several of one position where it is large;
// its position is its commit record's place in the log, plus one. Confirming the
// slot there makes the server skip exactly the transactions up to it. A quiet
// database has its position published in an empty batch, now and then, so that
// it takes the same way through every lane as everything else before the slot
// follows.
//
// # Snapshots
//
// A snapshot reads a table chunk by chunk while its changes keep flowing; why a
// lane never goes back in time by that is argued at the type window. In the lanes
// that asked for it, a snapshot of an index is
//
//   - a snapshot batch that deletes the document [EveryID] of the index: from here on,
//     what is not sent again is gone,
//   - snapshot batches with the rows, between live batches,
//   - the SnapshotComplete, in one commit with the ack of the request.
//
// No row has the id [EveryID], so a sink that takes the mark for an ordinary
// delete comes to no harm; it only keeps what disappeared unseen. The request
// for index * is for all tables there are: its mark is for index *, and an
// index that its SnapshotComplete does not name is gone.
//
// The engine asks for snapshots itself, on behalf of every sink, where the feed does not
// say what happened: a TRUNCATE; a table that is new, altered or dropped; a
// change feed that is not the one before, after a lost slot, a restore or a fail-over.
// On behalf of one sink it asks where that was left out of a run, so that the slot has passed it.
// Such a request is durable before the position behind it can be confirmed.
package ingest
