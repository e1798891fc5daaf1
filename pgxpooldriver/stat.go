package pgxpooldriver

import "time"

// Stat has the figures of a pgxpool.Stat.
type Stat struct{}

func (s *Stat) AcquireCount() int64                 { return 0 }
func (s *Stat) AcquireDuration() time.Duration      { return 0 }
func (s *Stat) AcquiredConns() int32                { return 0 }
func (s *Stat) CanceledAcquireCount() int64         { return 0 }
func (s *Stat) ConstructingConns() int32            { return 0 }
func (s *Stat) EmptyAcquireCount() int64            { return 0 }
func (s *Stat) EmptyAcquireWaitTime() time.Duration { return 0 }
func (s *Stat) IdleConns() int32                    { return 0 }
func (s *Stat) MaxConns() int32                     { return 0 }
func (s *Stat) TotalConns() int32                   { return 0 }
func (s *Stat) NewConnsCount() int64                { return 0 }
func (s *Stat) MaxLifetimeDestroyCount() int64      { return 0 }
func (s *Stat) MaxIdleDestroyCount() int64          { return 0 }
