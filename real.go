package pooldriver

import (
	"context"
	"database/sql/driver"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/usage"
	"github.com/pooldriver/pooldriver/pool"
)

// realConn is one real connection, as the pool lends it: a session, and who has it.
type realConn struct {
	session.Session

	connector      *core
	poolGeneration uint64 // of the connector when it was dialled: see Connector.flushOnce
	lease          pool.Lease[*realConn]
	// holder is the binding that has the connection, nil if none has. It changes under the
	// session's lock.
	holder atomic.Pointer[binding]
	use    use // what its holder keeps of it, under the lock
	meter  usage.Meter

	notices atomic.Uint32 // for its next use; see ready

	// values are those that the driver's ResetSession has last had, in an explicit task. The
	// session's lock protects it.
	values context.Context

	leakTold atomic.Uint64 // of which checkout the log was told

	number uint64 // in the connector, from 1
	born   int64  // by the clock of the meter

	// set is the text of the last statement without a task that has set session state,
	// with its arguments.
	set     string
	setArgs []driver.NamedValue
	applied applied // what it has of what was set on the *sql.DB

	// discarded is why its borrower has ended it, if ended is not nil.
	discarded report.Reason
	// ended is closed when the server has let go of it, or was given up; nil: nobody asks. It
	// is made when the connection is discarded, and not sooner: see package bubble.
	ended chan struct{}
}

var _ session.Holder = (*realConn)(nil)

func (c *core) newRealConn(server dialects.Session, generation uint64) *realConn {
	r := &realConn{connector: c, poolGeneration: generation}
	r.number, r.born = c.numbers.Add(1), c.usage.Clock.Fine()
	r.Init(&c.env, server, c.traits, r)
	r.meter.Init(&c.usage)
	return r
}

// Diagnosed acts on what an error says of the server and of the session.
func (r *realConn) Diagnosed(said dialects.Diagnosis) {
	if said&dialects.Spent != 0 {
		r.RecordEffect(dialects.Stateful | dialects.Unresettable)
	}
	if said&dialects.ServerLeaving != 0 {
		r.connector.flushOnce(r.poolGeneration)
	}
}

// RowsFailed forgets the setting.
func (r *realConn) RowsFailed() { r.forgetSetting() }

// forgetSetting is for a statement that has failed: it sets nothing.
func (r *realConn) forgetSetting() { r.set, r.setArgs = "", nil }

// StatementsExhausted closes what idle connections have prepared: the server's limit is
// reached, which is for all its clients.
func (r *realConn) StatementsExhausted() { r.connector.returnStatements() }

// CountedOnTx raises the loss barrier of the task.
func (r *realConn) CountedOnTx(loss *session.LostError) { r.holder.Load().lossBarrier.Store(loss) }

// Detached counts a checkout out, whose rows are in memory.
func (r *realConn) Detached() { r.use.users-- }
