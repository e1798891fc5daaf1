package dialects

import (
	"context"
	"time"
)

// A Positioned is a Session that can tell positions in the log of changes that replicas replay.
type Positioned interface {
	Session
	// Written asks a primary for a position that has everything that was committed before.
	Written(ctx context.Context) (position string, err error)
	// Replayed asks a replica how far it has come. Its lag in time is asked for only if lag.
	Replayed(ctx context.Context, lag bool) (ReplicaState, error)
}

// ReplicaState is what a replica says of itself.
type ReplicaState struct {
	Position string        // empty: it does not say
	Standby  bool          // it is one: it replays the log of a primary
	Lag      time.Duration // how far it is behind; negative: it does not say
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
