package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestNobodyLooksAtAConnectionThatAFunctionOfRawHas: the rest of its task queries,
// shares connections and closes them meanwhile. The race detector sees who asks
// the driver anything.
func TestNobodyLooksAtAConnectionThatAFunctionOfRawHas(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		for _, limit := range []int{1, 2} {
			t.Run(fmt.Sprintf("pool_max_conns=%d", limit), func(t *testing.T) {
				p := s.open(t, limit)
				for range randomtest.Rounds(2, 30) {
					p.useBesideRaw(t)
				}
				p.requireAtRest(t)
			})
		}
	})
}

func (p stagePool) useBesideRaw(t *testing.T) {
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	connect := func(ctx context.Context) *sql.Conn {
		conn, err := p.Conn(ctx)
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(ctx))
		return conn
	}
	conn := connect(ctx)
	defer conn.Close()
	const others = 3
	var sharing [others]*sql.Conn
	for i := range sharing {
		sharing[i] = connect(ctx)
	}

	inside, over := make(chan struct{}), make(chan struct{})
	raw := async(func() error {
		return pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
			for calls := 0; ; calls++ {
				for _, statement := range []string{"BEGIN", "COMMIT"} {
					if _, err := dc.(driver.ExecerContext).ExecContext(ctx, statement, nil); err != nil {
						return err
					}
				}
				if calls == 0 {
					close(inside)
				}
				select {
				case <-over:
					return nil
				default:
				}
			}
		})
	})
	<-inside
	var all sync.WaitGroup
	for _, conn := range sharing {
		all.Go(func() {
			for n := range 6 {
				brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				err := p.once(brief, n)
				// The cancellation of another may have closed the connection that a *sql.Conn shares.
				if err != nil && brief.Err() == nil && !(n%3 == 2 && errors.Is(err, driver.ErrBadConn)) {
					t.Errorf("use %d: %v", n, err)
				}
				cancel()
				if n == 2 {
					_ = conn.Close() // may be the very connection's
				}
			}
		})
	}
	all.Wait()
	close(over)
	require.NoError(t, <-raw)
	require.NoError(t, conn.PingContext(ctx))
	p.mustExec(ctx, t, "SELECT 1")
	require.NoError(t, conn.Close())
	end()
	p.requireNothingLeft(t)
}

// once uses the pool in one of three ways.
func (p stagePool) once(ctx context.Context, n int) error {
	switch n % 3 {
	case 0:
		_, err := count(ctx, p.DB, "SELECT 1")
		return err
	case 1:
		_, err := p.ExecContext(ctx, "SELECT 1")
		return err
	}
	conn, err := p.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(conn.PingContext(ctx), conn.Close())
}
