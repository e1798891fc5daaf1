package pgxpooldriver

import (
	"time"

	"github.com/pooldriver/pooldriver"
)

// Stat has the figures of a pgxpool.Stat. They are those of the Connector, so they count its *sql.DB, too. Connector.Stats
// has more.
type Stat struct{ stats pooldriver.Stats }

// Stat returns the figures of the pool.
func (p *Pool) Stat() *Stat {
	if p.connector == nil {
		return &Stat{}
	}
	return &Stat{p.connector.Stats()}
}

// AcquireCount counts the connections that were taken.
func (s *Stat) AcquireCount() int64 { return int64(s.stats.Pool.Acquires) }

// AcquireDuration is how long statements have waited for connections, also those that got none.
func (s *Stat) AcquireDuration() time.Duration { return s.stats.Wait.Sum }

// AcquiredConns counts the connections that are in use, or are being cleaned, checked or closed.
func (s *Stat) AcquiredConns() int32 {
	return int32(s.stats.Pool.Active - s.stats.Pool.Creating)
}

// CanceledAcquireCount counts the statements that got no connection before their contexts ended.
func (s *Stat) CanceledAcquireCount() int64 { return int64(s.stats.Pool.Cancelled) }

// ConstructingConns counts the connections that are being opened.
func (s *Stat) ConstructingConns() int32 { return int32(s.stats.Pool.Creating) }

// EmptyAcquireCount counts the statements that have waited for a connection.
func (s *Stat) EmptyAcquireCount() int64 { return int64(s.stats.Wait.Count - s.stats.Wait.Buckets[0]) }

// EmptyAcquireWaitTime is AcquireDuration.
func (s *Stat) EmptyAcquireWaitTime() time.Duration { return s.stats.Wait.Sum }

// IdleConns counts the idle connections.
func (s *Stat) IdleConns() int32 { return int32(s.stats.Pool.Idle) }

// MaxConns is the limit.
func (s *Stat) MaxConns() int32 { return int32(s.stats.Pool.Max) }

// TotalConns counts all connections.
func (s *Stat) TotalConns() int32 { return int32(s.stats.Pool.Count) }

// NewConnsCount counts the connections that were opened.
func (s *Stat) NewConnsCount() int64 { return int64(s.stats.Pool.Creates) }

// MaxLifetimeDestroyCount counts the connections that were closed because they were too old.
func (s *Stat) MaxLifetimeDestroyCount() int64 {
	return int64(s.stats.Closed[pooldriver.CloseLifetime])
}

// MaxIdleDestroyCount counts the connections that were closed because they were idle for too long.
func (s *Stat) MaxIdleDestroyCount() int64 {
	return int64(s.stats.Closed[pooldriver.CloseIdleTime])
}
