package clones

import (
	"database/sql"
	"sync"
	"time"
)

// linger is how long a handle outlives its last clone: tests that run one after the other do not dial for each. It is
// short, because tests look for goroutines that were left.
const linger = 100 * time.Millisecond

// mostSessions bounds the sessions of a process on one DSN. A clone has one.
const mostSessions = 1000

// handle is what the clones of a DSN share in this process: the sessions of clones that were dropped are those of the next
// ones. The pool cleans a session in between, so no lock stays.
type handle struct {
	key   handleKey
	db    *sql.DB
	users int // guarded by handles.mu
}

type handleKey struct {
	kind Kind
	dsn  string
}

var handles struct {
	mu  sync.Mutex
	all map[handleKey]*handle // guarded by mu; those that are open
}

// openHandle counts a user.
func openHandle(p Plan) (*handle, error) {
	handles.mu.Lock()
	defer handles.mu.Unlock()
	key := handleKey{p.Kind, p.DSN}
	h := handles.all[key]
	if h == nil {
		db, err := p.Open(p.DSN, mostSessions) // dials nothing
		if err != nil {
			return nil, err
		}
		if handles.all == nil {
			handles.all = map[handleKey]*handle{}
		}
		h = &handle{key: key, db: db}
		handles.all[key] = h
	}
	h.users++
	return h, nil
}

// close takes a user off. Nobody tells a package when the tests of a process end.
func (h *handle) close() {
	handles.mu.Lock()
	defer handles.mu.Unlock()
	if h.users--; h.users == 0 {
		time.AfterFunc(linger, h.closeIfIdle)
	}
}

func (h *handle) closeIfIdle() {
	handles.mu.Lock()
	idle := h.users == 0 && handles.all[h.key] == h
	if idle {
		delete(handles.all, h.key)
	}
	handles.mu.Unlock()
	if idle {
		_ = h.db.Close()
	}
}
