package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// crowd is goroutines that use one task, or none, at the same time. What each gets must be its own, or an error.
type crowd struct {
	*testing.T
	db     *sql.DB
	number int  // that the task has set; 0: it has set nothing
	inTask bool // the task is an explicit one
}

// member is one goroutine of a crowd.
type member struct {
	crowd
	random *rand.Rand
}

// read reads rows, and perhaps stops before their end. Between two rows it does something else.
func (m *member) read(ctx context.Context, from interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, between func()) {
	total := m.random.IntN(6)
	rows, err := from.QueryContext(ctx, fmt.Sprintf("SELECT n FROM numbers LIMIT %d", total))
	if err != nil {
		return
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var got int
		if err := rows.Scan(&got); err == nil && got != n {
			m.Errorf("row %d is %d", n, got)
		}
		if m.random.IntN(4) == 0 {
			between()
		}
		if m.random.IntN(8) == 0 {
			return
		}
	}
	if rows.Err() == nil && n != total {
		m.Errorf("%d rows of %d", n, total)
	}
}

// look looks at the session: it is the task's.
func (m *member) look(ctx context.Context, name string, want any) {
	var got any
	if err := m.db.QueryRowContext(ctx, "SHOW "+name).Scan(&got); err == nil && got != want {
		m.Errorf("%s of %d is %v, and not %v", name, m.number, got, want)
	}
}

func (m *member) conn(ctx context.Context) {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return
	}
	if m.random.IntN(3) == 0 {
		closes := m.random.IntN(3) == 0
		_ = pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
			if closes {
				_ = conn.Close()
			}
			return rawly(ctx, dc, "PING")
		})
	}
	m.read(ctx, conn, func() { // not on conn: if it dies, database/sql waits there for the rows
		if m.inTask {
			_, _ = m.db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		}
	})
	_ = conn.Close()
}

func (m *member) act(ctx context.Context) {
	switch m.random.IntN(10) {
	case 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(m.random.IntN(500))*time.Microsecond)
		defer cancel()
	case 1:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go cancel()
	}
	var set any
	if m.number > 0 {
		set = int64(m.number)
	}
	switch m.random.IntN(12) {
	case 0, 1:
		_, _ = m.db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	case 2, 3:
		m.read(ctx, m.db, func() { _, _ = m.db.ExecContext(ctx, "INSERT INTO t VALUES (1)") })
	case 4:
		m.read(ctx, m.db, func() { time.Sleep(time.Millisecond) })
	case 5, 6:
		m.look(ctx, "a", set)
	case 7, 8:
		m.conn(ctx)
	case 9:
		_ = inTransaction(ctx, m.db, func(ctx context.Context) error {
			if m.inTask {
				m.look(ctx, "transaction", "open")
			}
			m.read(ctx, m.db, func() {})
			return ctx.Err()
		})
	case 10:
		tx, err := m.db.BeginTx(ctx, nil)
		if err == nil {
			m.read(ctx, tx, func() { _, _ = tx.ExecContext(ctx, "INSERT INTO t VALUES (1)") })
			_ = tx.Rollback()
		}
	case 11:
		if stmt, err := m.db.PrepareContext(ctx, "INSERT INTO t VALUES (?)"); err == nil {
			_, _ = stmt.ExecContext(ctx, 1)
			_ = stmt.Close()
		}
	}
}

// live lets the crowd do what it does.
func (c crowd) live(ctx context.Context, random *rand.Rand, end func()) {
	var all sync.WaitGroup
	for range 4 {
		m := member{c, rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))}
		all.Go(func() {
			for range 5 + m.random.IntN(20) {
				m.act(ctx)
			}
		})
	}
	if random.IntN(2) == 0 {
		time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
		end()
	}
	all.Wait()
	end()
}

// TestCrowdsOfOneTaskLeaveNothingBehind, whatever their goroutines do at the same time.
func TestCrowdsOfOneTaskLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	random := randomtest.Seeded(t)
	for _, most := range []int{1, 2, 4} {
		for _, kills := range []bool{false, true} {
			t.Run(fmt.Sprintf("max=%d,kills=%v", most, kills), func(t *testing.T) {
				defer randomtest.Watch(t, 10*time.Minute)()
				for range randomtest.Rounds(5, 200) {
					crowdsAtOnce(t, most, kills, random)
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}

func crowdsAtOnce(t *testing.T, most int, kills bool, random *rand.Rand) {
	server, db, c := openTasks(t, most, quiet, deadlockAfter(200*time.Millisecond))
	var done atomic.Bool
	var looks, all sync.WaitGroup
	looks.Go(func() {
		for !done.Load() {
			c.Holders()
			if kills {
				killOne(server)
			}
			time.Sleep(time.Millisecond)
		}
	})
	for number := range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		who, end := crowd{T: t, db: db}, func() {}
		switch number % 4 {
		case 0, 1:
			who.inTask = true
			ctx, end = pooldriver.WithTask(ctx)
		case 2:
			ctx, end = task.WithImplicit(ctx)
		}
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		all.Go(func() {
			if number%4 == 0 {
				if _, err := db.ExecContext(ctx, fmt.Sprintf("SET a = %d", number+1)); err != nil {
					end()
					return
				}
				who.number = number + 1
			}
			who.live(ctx, own, end)
		})
	}
	all.Wait()
	done.Store(true)
	looks.Wait()
	server.Heal()
	atRest(t, c)
	state := server.State()
	require.Zero(t, state.InTx())
	require.Zero(t, state.OpenRows())
	require.LessOrEqual(t, state.MaxOpen, most)
	require.Zero(t, c.Stats().BufferedBytes)
	require.Empty(t, server.Violations())
	require.NoError(t, db.Close())
}

func killOne(server *fakedb.Server) {
	if sessions := server.State().Sessions; len(sessions) > 0 {
		server.Kill(sessions[rand.IntN(len(sessions))].ID)
	}
}
