// Package virtual has the virtual connections that database/sql pools: their calls become
// operations on a session.
package virtual

import (
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/replica"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// Source is what the virtual connections of one Connector share.
type Source struct {
	config *config.Config
	traits dialects.Traits
	engine *binding.Engine
	pool   *connpool.Pool
	report *report.Report
	// hiddenValidator: the log knows of a wrapper that keeps IsValid from us.
	hiddenValidator atomic.Bool
	Replicas        *replica.Set           // nil: there are none
	Inside          beneath.Beneath        // what package sandbox may do; nil: nothing
	Watch           func() beneath.Watcher // of each virtual connection; nil: nobody watches
	judges          textcache.Judges
	texts           textcache.Cache // far larger than the rest
}

// Init prepares s, whose operations run on connections of e.
func (s *Source) Init(c *config.Config, t dialects.Traits, e *binding.Engine, r *report.Report) {
	s.judges = textcache.JudgesOf(c.Dialect)
	s.config, s.traits, s.engine, s.pool, s.report = c, t, e, e.Pool(), r
}

// tellHiddenValidator writes one warning to the log. Some wrappers (sqlhooks, DataDog's) hide
// driver.Validator: then we do not learn when database/sql puts a connection back. ResetSession
// notices that, ends the checkout, and from then on checkouts end early.
func (s *Source) tellHiddenValidator() {
	if s.hiddenValidator.Swap(true) {
		return
	}
	s.report.ValidatorHidden()
}
