// Package usage measures for how long connections are held, and for how much of that time
// nothing runs on them. It costs some nanoseconds for each checkout and each operation.
package usage

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/observe/callsite"
	"github.com/pooldriver/pooldriver/internal/observe/histogram"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

// Clock is the time of the meters.
type Clock = bubble.CoarseClock

// NewClock returns a clock. It starts nothing.
func NewClock() *Clock {
	c := &Clock{}
	c.Start()
	return c
}

// Env is what the meters of one connector share. It does not change.
type Env struct {
	Config *config.Config
	Clock  *Clock
	// Observed: somebody wants to know every checkout.
	Observed bool
	// Sites has the call stacks that took connections, Statements the call stacks of statements.
	Sites, Statements callsite.Table
	// Hold and Idle are of the timed checkouts.
	Hold, Idle histogram.Histogram
	// Times has how long statements take, of the timed checkouts.
	Times Times
	// TellSlow is called for each statement that takes Config.SlowQuery or longer, under the lock of its
	// connection: it must be quick. If SlowQuery is 0, TellSlow is not called.
	TellSlow func(SlowQuery)
}

// Each connection has a budget for expensive measurements, for each tick of the clock. Beyond the
// budget one checkout of several is drawn, and counts for several.
const (
	timedPerTick  = 20 // checkouts that read the exact clock
	everyTimed    = 32
	stacksPerTick = 1
	// pinStacks is stacksPerTick for transactions, other pins and waits beyond sampledWait.
	pinStacks = 3
	// sampledWait is the wait from which on a checkout may draw on pinStacks.
	sampledWait = time.Millisecond
)

// Meter measures the use of one connection. Whoever has the lock of the connection calls its
// methods, except Look.
type Meter struct {
	env    *Env
	config *config.Config // of env

	// The fields that Look reads. They are stored only if they change: a store costs more than a
	// load.
	count     atomic.Uint64 // the number of the checkout; its operations in the lower half
	since     atomic.Int64  // when the checkout began
	last      atomic.Int64  // when an operation has last begun or ended, coarsely
	idle      atomic.Int64  // how long nothing ran since the checkout began
	pin       atomic.Uint32
	label     atomic.Pointer[string]
	text      atomic.Pointer[string] // of the last statement
	behind    atomic.Int32           // queries of a pipeline that come behind the present one
	site      atomic.Pointer[callsite.Site]
	statement atomic.Pointer[callsite.Site]

	failed    bool          // the operation has failed
	began     int64         // when the operation began, by the exact clock; 0: it is not timed
	timed     uint64        // how many checkouts its times stand for; 0: it is not timed
	sampled   atomic.Uint64 // how many checkouts site stands for
	exact     bool          // the exact clock is read
	idleSince int64         // since when nothing runs, by the exact clock; 0: not measured exactly
	strongest pinning.Pin
	waited    time.Duration
	tick      int64
	undrawn   int // so many checkouts more are neither timed nor sampled

	used Use
	slow statement

	// The budget.
	timings       int
	stacks        int
	ahead         int // undrawn when it was set
	untilTimed    int
	untilStack    int
	statementsPut int

	// Operations that env.Times does not have yet, and when it was told last.
	ended    [8]sample
	endedLen int
	told     int64
}

// Init makes m the meter of a new connection.
func (m *Meter) Init(env *Env) {
	m.env, m.config = env, env.Config
	m.untilTimed, m.untilStack = drawn(everyTimed), drawn(env.Config.SampleStacks)
}

// drawn returns after how many checkouts the next one is drawn. The average is the number every. A
// fixed number would keep step with a program that repeats itself.
func drawn(every int) int { return 1 + rand.N(max(1, 2*every-1)) }

// Begin begins a checkout. pins: it is a transaction or another pin. text is the first statement's
// text, or nil.
func (m *Meter) Begin(label, text *string, waited time.Duration, pins bool) {
	now := m.env.Clock.Coarse()
	if now != m.tick {
		m.renew(now)
	}
	m.strongest, m.waited, m.idleSince, m.began = pinning.Conn, waited, 0, 0
	sampled := uint64(0)
	if m.undrawn--; m.undrawn < 0 || pins || waited > sampledWait {
		sampled = m.draw(pins || waited > sampledWait)
		if m.exact {
			now = m.env.Clock.Fine()
			m.began, m.failed = now, false
		}
	}
	m.count.Store(m.count.Load()>>32<<32 + 1<<32 + 1)
	if m.since.Load() != now || m.last.Load() != m.tick {
		m.since.Store(now)
		m.last.Store(m.tick)
	}
	if m.label.Load() != label || m.text.Load() != text {
		m.label.Store(label)
		m.text.Store(text)
	}
	if m.remembers() {
		m.forget()
	}
	if m.config.SlowQuery > 0 {
		m.beginStatement(text, m.tick, waited)
	}
	if sampled > 0 {
		m.takeStack(sampled)
	}
}

// remembers reports whether Look may see something of the last checkout.
func (m *Meter) remembers() bool {
	return m.idle.Load() != 0 || m.pin.Load() != uint32(pinning.Conn) || m.statement.Load() != nil || m.site.Load() != nil
}

// forget empties what Look may have seen of the last checkout.
func (m *Meter) forget() {
	m.idle.Store(0)
	m.pin.Store(uint32(pinning.Conn))
	m.statement.Store(nil)
	m.site.Store(nil)
}

// draw decides how a checkout is measured. sampled: how many checkouts its stack stands for.
func (m *Meter) draw(pins bool) (sampled uint64) {
	passed := m.ahead - max(0, m.undrawn) // these were neither timed nor sampled
	if m.undrawn >= 0 {
		passed-- // this one
	}
	m.untilTimed, m.untilStack = m.untilTimed-passed, m.untilStack-passed
	m.timed = m.drawTimed()
	sampled = m.drawStack(pins)
	m.exact = m.timed > 0 || sampled > 0
	m.ahead = 0
	if every := m.config.SampleStacks; !m.exact && every != 1 {
		if m.ahead = m.untilTimed - 1; every > 0 {
			m.ahead = min(m.ahead, m.untilStack-1)
		}
	}
	m.undrawn = m.ahead
	return sampled
}

// renew begins a new tick.
func (m *Meter) renew(now int64) {
	m.tick, m.timings, m.stacks, m.statementsPut = now, 0, 0, 0
	passed := m.ahead - max(0, m.undrawn)
	m.untilTimed, m.untilStack, m.ahead, m.undrawn = m.untilTimed-passed, m.untilStack-passed, 0, 0
}

func set(v *atomic.Int64, to int64) {
	if v.Load() != to {
		v.Store(to)
	}
}

func point(p *atomic.Pointer[string], to *string) {
	if p.Load() != to {
		p.Store(to)
	}
}

func (m *Meter) drawTimed() (weight uint64) {
	if m.timings < timedPerTick {
		m.timings++
		return 1
	}
	if m.untilTimed--; m.untilTimed > 0 {
		return 0
	}
	m.untilTimed = drawn(everyTimed)
	return everyTimed
}

// drawStack uses the budget first, so that each checkout counts once on average.
func (m *Meter) drawStack(pins bool) (weight uint64) {
	every := m.config.SampleStacks
	switch {
	case every == 0:
		return 0
	case every == 1 || m.stacks < stacksPerTick || pins && m.stacks < pinStacks:
		m.stacks++
		return 1
	}
	if m.untilStack--; m.untilStack > 0 {
		return 0
	}
	m.untilStack = drawn(every)
	return uint64(every)
}

func (m *Meter) takeStack(weight uint64) {
	site := m.env.Sites.Here(3) // takeStack, Begin, and the caller of Begin
	site.Taken(weight, m.waited)
	m.sampled.Store(weight)
	m.site.Store(site)
}

// BeginOperation begins an operation that is not the first of the checkout: Begin has begun the
// first. text is the operation's statement, or nil. pinned: the operation runs in a transaction or
// another pin. again: the operation was begun before, and goes on.
func (m *Meter) BeginOperation(text *string, pinned, again bool) {
	if !again {
		m.count.Store(m.count.Load() + 1)
	}
	m.countIdle()
	if m.exact && !again {
		m.began, m.failed = m.env.Clock.Fine(), false
	}
	if m.config.SlowQuery > 0 && !again {
		m.endStatement(m.last.Load()) // the last statement's rows are open
		m.beginStatement(text, m.last.Load(), 0)
	}
	if text != nil {
		point(&m.text, text)
	}
	if pinned && m.config.SampleStacks > 0 {
		m.takeStatementStack()
	}
}

// takeStatementStack takes the stack of a statement of a pin, if its checkout was sampled.
func (m *Meter) takeStatementStack() {
	if m.site.Load() == nil || m.config.SampleStacks > 1 && m.statementsPut >= pinStacks {
		if m.statement.Load() != nil {
			m.statement.Store(nil) // it is not the stack of the last statement
		}
		return
	}
	m.statementsPut++
	m.statement.Store(m.env.Statements.Here(2))
}

// countIdle ends a time in which nothing was running.
func (m *Meter) countIdle() {
	now := m.env.Clock.Coarse()
	gap := now - m.last.Load()
	if m.idleSince != 0 {
		gap = m.env.Clock.Fine() - m.idleSince
		m.idleSince = 0
	}
	if gap > 0 {
		m.idle.Store(m.idle.Load() + gap)
	}
	set(&m.last, now)
}

// EndOperation ends an operation. pin is why the connection is still held.
func (m *Meter) EndOperation(pin pinning.Pin) {
	m.SetPin(pin)
	now := m.env.Clock.Coarse()
	set(&m.last, now)
	if now != m.tick {
		m.renew(now)
	}
	if m.config.SlowQuery > 0 && !m.slow.open {
		m.endStatement(now)
	}
	// A checkout of one statement ends at once: it needs no exact time for that, unless the statement is timed.
	if !m.exact || m.began == 0 && !pin.KeepsTask() {
		return
	}
	exact := m.env.Clock.Fine()
	if m.began != 0 {
		m.tellTime(exact)
	}
	if pin.KeepsTask() {
		m.idleSince = exact
	}
}

// Failed says that the operation has failed.
func (m *Meter) Failed() { m.failed = true }

// tellTime tells env.Times of the operation that ends now. Several are told at once.
func (m *Meter) tellTime(now int64) {
	took := time.Duration(now - m.began)
	m.began = 0
	text := m.text.Load()
	if text == nil || len(*text) > longestText {
		return
	}
	m.ended[m.endedLen] = sample{text, took, m.failed}
	if m.endedLen++; m.endedLen == len(m.ended) || now-m.told >= int64(time.Second) {
		m.env.Times.add(m.ended[:m.endedLen], now)
		clear(m.ended[:m.endedLen])
		m.endedLen, m.told = 0, now
	}
}

// Lead says that behind queries of other borrowers come behind the operation in one pipeline.
func (m *Meter) Lead(behind int) { m.behind.Store(int32(behind)) }

// Next ends the present query of a pipeline, and begins the next one, whose borrower has waited.
func (m *Meter) Next(label, text *string, waited time.Duration) {
	m.EndOperation(pinning.Conn)
	point(&m.label, label)
	m.BeginOperation(text, false, false)
	m.slow.waited = waited
	m.behind.Add(-1)
}

// EndLead ends what Lead began. label is the leader's again.
func (m *Meter) EndLead(label *string) {
	m.EndOperation(pinning.Conn)
	point(&m.label, label)
	m.behind.Store(0)
}

// BeginRow is called before a row is read, and EndRow after it.
func (m *Meter) BeginRow() {
	if m.idleSince != 0 || m.env.Clock.Coarse() != m.last.Load() {
		m.countIdle()
	}
}

// EndRow ends what BeginRow began.
func (m *Meter) EndRow() { set(&m.last, m.env.Clock.Coarse()) }

// Text is the last statement of the checkout; nil: there is none.
func (m *Meter) Text() *string { return m.text.Load() }

// SetPin says, between two operations, that the connection is held for another reason.
func (m *Meter) SetPin(pin pinning.Pin) {
	if m.pin.Load() != uint32(pin) {
		m.pin.Store(uint32(pin))
	}
	m.strongest = max(m.strongest, pin)
}

// Resume says that something other than an operation has been running until now.
func (m *Meter) Resume() {
	m.idleSince = 0
	set(&m.last, m.env.Clock.Coarse())
}

// CountElsewhere counts a statement that another one's connection has served after a wait: its call stack, if
// that is drawn.
func (e *Env) CountElsewhere(waited time.Duration) {
	if every := e.Config.SampleStacks; every > 0 && rand.N(every) == 0 {
		e.Sites.Here(1).Taken(uint64(every), waited)
	}
}

// Use is a checkout that has ended.
type Use struct {
	Held, Idle time.Duration
	Timed      uint64      // how many checkouts it stands for; 0: its times are coarse
	Pin        pinning.Pin // the strongest reason
	Operations uint64
	Label      *string // nil: none
}

// End ends the checkout.
func (m *Meter) End() {
	if m.config.SlowQuery > 0 {
		m.endStatement(m.env.Clock.Coarse())
	}
	if m.exact || m.env.Observed {
		m.used = m.end()
	}
}

// Used is the checkout that has ended last, if Env.Observed is set. The next Begin may follow as
// soon as the lock is free.
func (m *Meter) Used() Use { return m.used }

func (m *Meter) end() (u Use) {
	m.countIdle()
	now := m.now()
	u = Use{
		Held:       time.Duration(max(0, now-m.since.Load())),
		Idle:       time.Duration(m.idle.Load()),
		Timed:      m.timed,
		Pin:        m.strongest,
		Operations: operations(m.count.Load()),
		Label:      m.label.Load(),
	}
	u.Idle = min(u.Idle, u.Held)
	if m.timed > 0 {
		m.env.Hold.Record(u.Held, m.timed)
		m.env.Idle.Record(u.Idle, m.timed)
	}
	if site := m.site.Load(); site != nil {
		site.GivenBack(m.sampled.Load(), u.Held, u.Idle)
	}
	return u
}

// now is the time, as exactly as this checkout is measured.
func (m *Meter) now() int64 {
	if m.exact {
		return m.env.Clock.Fine()
	}
	return m.env.Clock.Coarse()
}

// Look is what Meter.Look returns.
type Look struct {
	Checkout    uint64 // differs between two checkouts
	Since       int64  // by the clock
	Last        int64  // when an operation has last begun or ended, by the clock
	Idle        time.Duration
	Pin         pinning.Pin
	Operations  uint64         // also an operation that runs now
	Behind      int            // queries of a pipeline that come behind the present one
	Label, Text *string        // nil: none
	Site        *callsite.Site // nil: it was not sampled
	Weight      uint64         // how many checkouts the sampled checkout stands for
	Statement   *callsite.Site
}

// Text is the text of a label; label may be nil.
func Text(label *string) string {
	if label == nil {
		return ""
	}
	return *label
}

// Checkout is Look.Checkout, without the rest.
func (m *Meter) Checkout() uint64 { return m.count.Load() >> 32 }

// Look returns how the checkout stands. It needs no lock. ok is false if one checkout ended and
// another began meanwhile.
func (m *Meter) Look() (l Look, ok bool) {
	count := m.count.Load()
	l = Look{
		Checkout:  count >> 32,
		Since:     m.since.Load(),
		Last:      m.last.Load(),
		Idle:      time.Duration(m.idle.Load()),
		Pin:       pinning.Pin(m.pin.Load()),
		Label:     m.label.Load(),
		Text:      m.text.Load(),
		Behind:    int(m.behind.Load()),
		Site:      m.site.Load(),
		Weight:    m.sampled.Load(),
		Statement: m.statement.Load(),
	}
	count = m.count.Load()
	l.Operations = operations(count)
	return l, count>>32 == l.Checkout
}

// operations returns the operations in a count.
func operations(count uint64) uint64 { return count & (1<<32 - 1) }
