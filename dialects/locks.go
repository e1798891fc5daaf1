package dialects

import (
	"context"
	"time"
)

// A LockFinder is a Dialect that can ask a server which sessions wait for locks, and who has
// these locks.
type LockFinder interface {
	Dialect
	// LockWaits asks on asking, which runs no statement. It returns those of the sessions in waiting
	// that wait for a lock, once for each session that is in the way. It may have an error and a
	// part of the answer: a server shows some of it only to privileged users.
	LockWaits(ctx context.Context, asking Session, waiting []uint64) ([]LockWait, error)
}

// LockWait is a session that waits for a lock, and one that is in its way. Sessions are numbered as
// by Identified.
type LockWait struct {
	Waiting uint64
	Lock    string // what the server calls the lock: relation, metadata
	Blocker uint64 // 0: not known, and so is the rest
	Of      string // the blocker's user and program, as the server shows them
	// State is what the server says that the blocker does, since For, and Statement is its
	// present or last statement, with its literals.
	State     string
	For       time.Duration
	Statement string
}
