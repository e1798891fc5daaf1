package dialects

import (
	"context"
	"errors"
	"time"
)

// A Positioned is a Session that can tell positions in the log of changes that replicas replay.
type Positioned interface {
	Session
	// Written asks a primary how far its log is. The error is an ErrNoPosition if the server does not tell.
	Written(ctx context.Context) (Log, error)
	// Replayed asks a replica how far it has come. If lag, one that tells no position is asked for its lag.
	Replayed(ctx context.Context, lag bool) (ReplicaState, error)
}

// ErrNoPosition is in the error of a server that does not tell its position.
var ErrNoPosition = errors.New("the server does not tell its position in the log")

// Log is what a primary says of its log.
type Log struct {
	Position string // has everything that was committed before
	Flushed  string // up to here replicas may have it
	// Lazy: the session does not wait until what it commits is flushed, and Flushed is before Position.
	Lazy bool
}

// ReplicaState is what a replica says of itself.
type ReplicaState struct {
	Position string        // empty: it does not say
	Standby  bool          // it is one: it replays the log of a primary
	Lag      time.Duration // how far it is behind, as it believes, if Position is empty; negative: it does not say
}

// Positions compares positions. A position is text that only its dialect understands. Where a method is not sure, it
// says what sends a read to the primary.
type Positions interface {
	// Reached reports whether a server that has replayed up to replayed has all of position. It is false if
	// the two are of different histories, as after a failover.
	Reached(position, replayed string) bool
	// SameDatabase reports whether two positions are of one database, if only of different histories of it.
	SameDatabase(a, b string) bool
	// Valid reports whether text, which may come from anywhere, is a position.
	Valid(text string) bool
}
