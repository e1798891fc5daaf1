// Package config has the settings of a Connector.
package config

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

// Config is the settings of one Connector, for all its parts. The Connector fills it once, with all
// defaults, and nobody changes it. A field means what the field of the same name in pooldriver.Config
// means: 0 and nil mean "never", "no limit" or "none".
type Config struct {
	Dialect dialects.Dialect // of the template

	MaxConns, MinConns, MinIdleConns, MaxWaiters                               int
	MaxConnLifetime, MaxConnLifetimeJitter, MaxConnIdleTime, HealthCheckPeriod time.Duration
	AcquireTimeout, ConnectTimeout, PingTimeout, CleanTimeout                  time.Duration
	// IdleTimeout bounds the look at an idle connection before it is lent.
	IdleTimeout time.Duration
	// QueueTarget, QueueInterval and QueueDry are those of pool.Config.
	QueueTarget, QueueInterval time.Duration
	QueueDry                   bool
	BreakerFailures            int
	BreakerCooldown            time.Duration
	AfterConnect               func(context.Context, driver.Conn) error
	Credentials                func(context.Context) (dialects.Credential, error)

	Reset     pinning.Mode
	Pipeline  int // most queries of one pipeline; 0: there is none
	StmtCache int // of one connection, within pooldriver.Config.StmtBudget
	LazyBegin bool

	Ambient                    Ambient
	TaskKey                    func(context.Context) (key any, lifetime context.Context) // it does not panic
	TaskTimeout, DeadlockAfter time.Duration
	// NestedBufferOthers limits the rows of all statements in memory where other tasks wait for a
	// connection. NestedBufferTotal limits them where a statement of the same task needs the connection.
	NestedBuffer, NestedBufferTotal, NestedBufferOthers int64

	ListenPing time.Duration

	// Confirm, of the pool of a replica, returns the era of a connection that was just dialled: see floor.Watcher.
	Confirm                    func(context.Context) uint64
	ReplicaReads               Reads
	ReplicaFallback            bool
	ReplicaWait, ReplicaMaxLag time.Duration

	SampleStacks int
	SlowQuery    time.Duration
}

// Ambient is a pooldriver.AmbientMode.
type Ambient uint8

// The modes, in the order of pooldriver's.
const (
	AmbientAuto Ambient = iota
	AmbientJoin
	AmbientWarn
	AmbientStrict
)

// Reads is a pooldriver.ReadsMode.
type Reads uint8

// The modes, in the order of pooldriver's.
const (
	ReadsExplicit Reads = iota
	ReadsTx
	ReadsAuto
)
