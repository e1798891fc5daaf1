package dialects

import (
	"context"
	"time"
)

// A LockFinder is a Dialect that can ask a server which sessions wait for locks, and who has
// these locks.
type LockFinder interface {
	Dialect
	// LockWaits queries the server on the session asking, which runs no other statement. It returns
	// one LockWait for each session of waiting that waits for a lock, and each session in its way. If such a session waits itself, the
	// answer may have a LockWait for it, too.
	// It may return an error together with a part of the answer: a server shows some of the answer
	// only to privileged users.
	LockWaits(ctx context.Context, asking Session, waiting []uint64) ([]LockWait, error)
}

// LockWait is a session that waits for a lock, and one that is in its way. Sessions are numbered as
// by Identified.
type LockWait struct {
	Waiting uint64
	Lock    string // what the server calls the lock: relation, metadata
	Blocker uint64 // 0: not known, and so is the rest
	Of      string // user and program of the blocking session, as the server shows them
	// State is the blocker's activity in the server's words, since For. Statement is the blocker's
	// present or last statement, with its literals.
	State     string
	For       time.Duration
	Statement string
}
