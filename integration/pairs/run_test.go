package pairs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

// fault is what a judge has seen.
type fault struct {
	judge, act string
	times      int
	first      string
}

// run is one configuration on its world.
type run struct {
	*testing.T
	*world
	*setup
	events
	cfg       configuration
	probe     int64 // how many acts a probe performs at most, which ends with its first fault; 0: it is no probe
	acts      []*act
	account   testbed.Account
	witness   *sql.DB
	connector *pooldriver.Connector
	db        *sql.DB
	handle    handle
	second    handle
	listens   bool
	unplugged bool     // the replicas
	hears     sync.Map // of ids to channels
	river     *jobs
	asking    sync.Mutex // of acts that hold a connection and need another: two of them would have both
	before    pooldriver.Stats

	refusals, hot, performed, slowest atomic.Int64
	draining                          atomic.Bool
	acting                            sync.Map // of labels to acts at work
	tallies                           map[string]*tally

	mu           sync.Mutex
	faults       map[string]*fault
	performances []*acting
}

// events are what a run itself does.
type events struct {
	rotations, done, jobs atomic.Int64
	sandboxed             bool // figures of a sandbox are in no Stats
}

// rough reports whether statements may fail because of the event.
func (r *run) rough() bool { return r != nil && (r.event == "kill" || r.event == "drain") }

// patience is a limit of time on a machine as busy as this one is now.
func (r *run) patience(d time.Duration) time.Duration { return d + 100*time.Duration(r.slowest.Load()) }

// limit is the patience of a judge. Where the judge will see a known fault it would only cost time.
func (r *run) limit(judge string, d time.Duration) time.Duration {
	if r.probe == 0 && knownFault(r.Primary.Engine, r.cfg, &fault{judge: judge, act: "run"}) != nil {
		return d / 8
	}
	return r.patience(d)
}

func (r *run) fault(x *acting, judge, format string, arguments ...any) {
	act, first := "run", fmt.Sprintf(format, arguments...)
	if x != nil {
		act, first = x.act.name, fmt.Sprintf("variant %d: ", x.seed)+first
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.faults[judge+act]
	if f == nil {
		f = &fault{judge: judge, act: act, first: clip(first, 2500)}
		r.faults[judge+act] = f
	}
	f.times++
}

func (x *acting) tally() *tally { return x.tallies[x.act.name] }

// label is the act's name in what a Connector tells.
func (x *acting) label() string { return fmt.Sprint(x.act.name, " ", x.base) }

// observer counts, by the labels, what acts have got.
func (r *run) observer() *pooldriver.Observer {
	return &pooldriver.Observer{
		AcquireDone: func(_ context.Context, i pooldriver.AcquireInfo) {
			x, t := r.labelled(i.Label)
			if x == nil {
				return
			}
			x.acquires.Add(1)
			if i.Task != "" {
				t.tasks.Add(1)
			}
			if i.Pipelined && i.Err == nil {
				t.pipelined.Add(1)
			}
		},
		TaskDone: func(i pooldriver.TaskInfo) {
			if _, t := r.labelled(i.Label); t != nil {
				t.tasks.Add(1)
			}
		},
	}
}

func (r *run) labelled(label string) (*acting, *tally) {
	if x, ok := r.acting.Load(label); ok {
		x := x.(*acting)
		return x, x.tally()
	}
	return nil, nil
}

// play has acts run in a configuration, and asks the judges. In a probe these are the acts with the names in only, and at most
// so many performances.
func (w *world) play(t *testing.T, c configuration, seed uint64, only []string, atMost int64) *run {
	t.Helper()
	var log recorded
	r := &run{T: t, world: w, cfg: c, probe: atMost, account: w.account, witness: w.witness, faults: map[string]*fault{}, tallies: map[string]*tally{}}
	r.setup = w.newSetup(c)
	for _, a := range acts {
		if a.isFor(c) && (w.postgres() || a.mariaDB) && (only == nil || slices.Contains(only, a.name)) && (only != nil || !apart(w.Primary.Engine, c, a.name)) {
			r.acts = append(r.acts, a)
			r.tallies[a.name] = &tally{}
		}
	}
	w.learn(t.Context(), r.acts, c.level("face"), r.tenants)
	r.clear()
	if c.has("place=database") {
		place := sandbox.Database(t, w.account.URL("application_name=witness"), sandbox.Migration{Version: "pairs", Run: makeTables})
		r.account.Database = place.Name
		r.witness = r.account.Witness(t)
		w.CatchUp(t)
	}
	r.connector = w.open(t, c, r.setup, r.account, r.observer(), slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	require.NoError(t, r.connector.Err())
	r.db = sql.OpenDB(r.connector)
	var second *sql.DB
	if !c.has("second=none") {
		of := r.account
		if c.has("second=other") {
			of = w.other
		}
		o := w.open(t, c, w.newSetup(c), of, nil, slog.DiscardHandler)
		second = sql.OpenDB(o)
		r.second = r.over(second, o)
	}
	r.before = r.connector.Stats()
	unwatch := w.watch(r.account.Database)
	db := r.db
	if r.sandboxed = c.has("place=handle"); r.sandboxed {
		t.Run("sandbox", func(t *testing.T) {
			inside := sandbox.Connector(told{t, r}, r.connector)
			r.db = sql.OpenDB(inside)
			defer func() { require.NoError(t, r.db.Close()) }()
			r.handle = r.over(r.db, inside)
			r.work(context.Background(), seed)
		})
	} else {
		r.handle = r.over(db, r.connector)
		r.work(context.Background(), seed)
	}
	r.atRest()
	if r.event == "silent" {
		for _, p := range w.proxies {
			p.Unplug()
		}
		r.unplugged = true
	}
	r.rotations.Store(w.turns.Swap(0))
	r.replicasServe()
	r.sessions(unwatch())
	r.end(db, second)
	r.plug()
	r.gone()
	r.check()
	for _, l := range log.all() {
		if strings.Contains(l, "level=ERROR") {
			r.fault(nil, "log", "%s", l)
		}
	}
	return r
}

// told makes a fault of what a sandbox fails its test with.
type told struct {
	testing.TB
	r *run
}

func (t told) Error(arguments ...any) {
	t.r.fault(nil, "the sandbox fails", "%s", fmt.Sprint(arguments...))
}

func (r *run) clear() {
	for _, db := range []*sql.DB{r.witness, r.elsewhere} {
		_, err := db.Exec("TRUNCATE writes")
		require.NoError(r, err)
		_, err = db.Exec("UPDATE hot SET n = 0")
		require.NoError(r, err)
	}
}

// sessions: the servers never have more sessions of the program than the limits allow.
func (r *run) sessions(peaks [3]int, what [3]string) {
	limit := most
	if r.listens {
		limit++
	}
	if r.rough() {
		limit += 2 // until the server has ended what was killed
	}
	if r.cfg.has("second=same") {
		limit += most
	}
	orphans := r.connector.Stats().Orphans > 0 // they are said, so they are no fault
	if peaks[0] > limit && !orphans {
		r.fault(nil, "too many sessions", "%d of %d: %s", peaks[0], limit, what[0])
	}
	for i := 1; i < 3; i++ {
		limit := most + 1 // one watches the replica
		if r.cfg.has("second=same") {
			limit *= 2
		}
		if r.cfg.has("hosts=several") {
			limit++ // each dial asks for the role
		}
		if peaks[i] > limit && !orphans {
			r.fault(nil, "too many sessions", "%d of %d on a replica: %s", peaks[i], limit, what[i])
		}
	}
}

// end drains and closes. Nobody uses the Connector, so both are quick, also beside replicas that do not answer.
func (r *run) end(db, second *sql.DB) {
	bound := r.limit("drain", 2*time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := r.connector.Drain(ctx); err != nil {
		r.fault(nil, "drain", "%v", err)
		if r.probe == 0 { // Close would wait, too, for seconds
			r.plug()
		}
	}
	begun := time.Now()
	require.NoError(r, db.Close())
	if second != nil {
		require.NoError(r, second.Close())
	}
	if took := time.Since(begun); took > bound {
		r.fault(nil, "close", "after %v", took.Round(time.Millisecond))
	}
}

// replicasServe: replicas that nobody holds have, mostly, what a read waits for before its wait ends.
func (r *run) replicasServe() {
	reads := r.connector.Stats().Replica.Reads
	waited, behind := reads[pooldriver.ReplicaWaited], reads[pooldriver.ReplicaBehind]+reads[pooldriver.ReplicaUnknown]
	if !r.cfg.has("event=none") || behind <= 10 || r.slowest.Load() >= int64(3*delay) {
		return
	}
	if r.cfg.has("commit=off") { // no replica can have what is not flushed, so none is waited for
		waits := r.connector.Stats().Replica.Wait.Count
		if waits > behind/4 {
			r.fault(nil, "replicas do not serve", "%d waits, %v", waits, reads)
		}
	} else if behind > 3*waited {
		r.fault(nil, "replicas do not serve", "%v", reads)
	}
}

func (r *run) over(db *sql.DB, c *pooldriver.Connector) handle {
	if r.cfg.has("face=pgx") {
		return onPool(pgxpooldriver.New(c))
	}
	return onSQL(db, !r.postgres())
}

// The least and the longest time of a run, and how many acts it has, also on a busy machine.
const (
	shortest = 700 * time.Millisecond
	longest  = 2 * time.Second
	enough   = 120
	least    = 40
)

// more reports whether a run goes on: until each act has been performed twice and each feature has acted, but not for ever.
func (r *run) more(took time.Duration) bool {
	n := r.performed.Load()
	switch {
	case r.event == "drain" && took > shortest && n > enough:
		return false
	case r.probe > 0:
		return took < r.patience(3*longest) && n < r.probe && !r.seenFault()
	case randomtest.Long() && r.cfg.has("river=on overload=on") && took < 20*time.Second:
		return true // so long, because River gives up after several refusals
	case took < shortest || n < enough && took < 2*longest || n < least && took < r.patience(2*longest):
		return true
	}
	return took < time.Duration(randomtest.Rounds(1, 3))*longest && !r.allActed()
}

func (r *run) plug() {
	if !r.unplugged {
		return
	}
	r.unplugged = false
	for _, p := range r.proxies {
		p.Plug()
	}
}

func (r *run) seenFault() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.faults) > 0
}

func (r *run) allActed() bool {
	for _, t := range r.tallies {
		if t.performed.Load() < 2 {
			return false
		}
	}
	after := r.connector.Stats()
	for i, a := range axes {
		level := a.levels[r.cfg[i]]
		if a.acted == nil || quietAxis(r.cfg, a.name) || r.event == "drain" && a.name == "event" {
			continue
		}
		acted := false
		for _, t := range r.tallies {
			acted = acted || a.acted(evidence{r.before, after, &r.events, t}, level)
		}
		if !acted {
			return false
		}
	}
	return true
}

// work has goroutines perform the acts in random order.
func (r *run) work(base context.Context, seed uint64) {
	stop, end := context.WithCancel(context.Background())
	var helpers, all sync.WaitGroup
	helpers.Go(func() { r.look(stop) })
	helpers.Go(func() { r.happen(stop, seed) })
	r.listen(stop, &helpers, base)
	if r.cfg.has("river=on") {
		r.river = startJobs(r)
		defer func() { r.river.stop(r) }()
	}
	var order []*act
	for _, a := range r.acts {
		for range 1 + a.often {
			order = append(order, a)
		}
	}
	begun := time.Now()
	for g := range workers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(g)))
			for r.more(time.Since(begun)) || r.draining.Load() {
				for _, i := range random.Perm(len(order)) {
					if r.more(time.Since(begun)) || r.draining.Load() {
						r.perform(base, order[i], random.Uint64N(variants))
					}
				}
			}
		})
	}
	if r.event == "drain" { // while the acts go on
		r.draining.Store(true)
		for r.more(time.Since(begun)) {
			time.Sleep(5 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), r.patience(20*time.Second))
		if err := r.connector.Drain(ctx); err != nil {
			r.fault(nil, "drain", "%v", err)
		}
		cancel()
		r.draining.Store(false)
	}
	all.Wait()
	if r.cfg.has("place=handle") {
		r.checkIn(base)
	}
	end()
	helpers.Wait()
}

func (r *run) perform(base context.Context, a *act, variant uint64) {
	x := newActing(a, variant)
	x.run, x.h, x.mariaDB, x.base = r, r.handle, !r.postgres(), r.ids()
	x.plain = pooldriver.Label(base, x.label())
	x.ctx = x.plain
	r.acting.Store(x.label(), x)
	if r.tenants {
		x.tenant = fmt.Sprint("tenant ", x.base)
	}
	var ends []func()
	for _, change := range r.contexts {
		var end func()
		x.ctx, end = change(x.ctx, x)
		ends = append(ends, end)
	}
	x.perform()
	token := pooldriver.Token(x.ctx) // where the context's writes are
	for _, end := range slices.Backward(ends) {
		end()
	}
	t := x.tally()
	t.performed.Add(1)
	r.performed.Add(1)
	r.world.acts.Add(1)
	if token != "" {
		t.positions.Add(1)
	}
	if x.end == refused {
		if t.refused.Add(1); x.low {
			t.refusedLow.Add(1)
		}
	}
	if x.end == refused || r.draining.Load() {
		time.Sleep(time.Duration(5+rand.IntN(25)) * time.Millisecond)
	}
	bare := r.bare[key{a, variant, r.cfg.level("face"), r.tenants && r.postgres()}]
	if difference := x.compare(bare); difference != "" {
		r.fault(x, "not as bare", "%s\n\t\tours: %s\n\t\tbare: %s", difference, x.text(), bare.text())
	}
	r.mu.Lock()
	r.performances = append(r.performances, x)
	r.mu.Unlock()
}

// look sees what no Observer is told: reads on replicas, tasks in a sandbox, how busy the machine is, a run that stands still.
func (r *run) look(ctx context.Context) {
	last, at := int64(-1), time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		for _, h := range r.connector.Holders() {
			if _, t := r.labelled(h.Label); t != nil && h.Replica {
				t.served.Add(1)
			}
		}
		for _, task := range r.connector.Tasks() {
			if _, t := r.labelled(task.Label); t != nil {
				t.tasks.Add(1)
			}
		}
		if i%10 == 0 {
			asked := time.Now()
			if _, err := r.witness.Exec("SELECT 1"); err == nil {
				r.slowest.Store(max(r.slowest.Load(), int64(time.Since(asked))))
			}
		}
		if n := r.performed.Load(); n != last {
			last, at = n, time.Now()
		} else if time.Since(at) > r.patience(20*time.Second) {
			at = time.Now().Add(time.Hour)
			s := r.connector.Stats()
			_, what, _ := sessions(ctx, r.Primary, r.account.Database)
			r.fault(nil, "stands still", "%d acts; active %d creating %d destroying %d waiting %d, dials failing %+v; server: %s; holders: %s", n, s.Pool.Active, s.Pool.Creating, s.Pool.Destroying, s.Pool.Waiting, s.DialsFailing, what, holders(r.connector))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func holders(c *pooldriver.Connector) (text string) {
	for _, h := range c.Holders() {
		text += fmt.Sprintf("[conn %d %s pin %s running %v for %v idle %v: %s] ", h.Conn, h.Host, h.Pin, h.Running, h.RunningFor, h.Idle, h.Statement)
	}
	return text
}

// happen has the event of the configuration happen again and again, at the pace of the acts: a busy machine would do nothing
// but events.
func (r *run) happen(ctx context.Context, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 99))
	for ctx.Err() == nil {
		switch r.event {
		case "flush":
			r.connector.Flush()
		case "hold":
			s := r.Replicas[random.IntN(2)]
			if s.Hold(context.Background()) == nil {
				r.done.Add(1)
			}
			time.Sleep(time.Duration(random.IntN(80)) * time.Millisecond)
			if err := s.Release(context.Background()); err != nil {
				r.Error(err)
			}
		case "kill":
			var n int64
			err := r.witness.QueryRow(`SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name NOT IN ('witness', 'bare') AND backend_type = 'client backend' ORDER BY random() LIMIT 1)`).Scan(&n)
			if err == nil {
				r.done.Add(n)
			}
		}
		next := r.performed.Load() + 6
		for pause(ctx, time.Duration(30+random.IntN(100))*time.Millisecond); ctx.Err() == nil && r.performed.Load() < next; {
			pause(ctx, 5*time.Millisecond)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// listen tells acts what a listener reads when it hears of them.
func (r *run) listen(ctx context.Context, all *sync.WaitGroup, base context.Context) {
	if !r.cfg.has("place=plain|database") || !r.postgres() {
		return
	}
	r.listens = true
	if r.cfg.has("reads=on") {
		base = pooldriver.WithReads(base)
	}
	base, cancel := context.WithCancel(base)
	context.AfterFunc(ctx, cancel)
	ready := make(chan struct{})
	once := sync.OnceFunc(func() { close(ready) })
	all.Go(func() {
		defer once()
		_ = r.connector.Listen(base, "news", func(ctx context.Context, n pooldriver.Notification) {
			once()
			if n.Gap {
				return
			}
			var id, found int64
			_, _ = fmt.Sscan(n.Payload, &id)
			answer := "1"
			for {
				err := one(ctx, r.handle, "SELECT count(*) FROM writes WHERE id = $1", []any{id}, &found)
				if errors.Is(err, pooldriver.ErrOverloaded) {
					r.refusals.Add(1)
					time.Sleep(10 * time.Millisecond)
					continue
				}
				if answer = fmt.Sprint(found); err != nil {
					answer = code(err)
				}
				break
			}
			if c, ok := r.hears.Load(id); ok {
				c.(chan string) <- answer
			}
		})
	})
	<-ready
}

// atRest: when the acts have ended nothing is lent, read ahead or open, and the figures are those of the program.
func (r *run) atRest() {
	var s pooldriver.Stats
	for end := time.Now().Add(r.limit("left behind", 2*time.Second)); ; time.Sleep(5 * time.Millisecond) {
		s = r.connector.Stats()
		lent := s.Pool.Active + s.Pool.Waiting + len(r.connector.Tasks())
		for _, p := range s.Replica.Pools {
			lent += p.Pool.Lent + p.Pool.Waiting
		}
		open, err := 0, error(nil)
		if r.postgres() { // on MariaDB the bare driver is the same user
			err = r.witness.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name NOT IN ('witness', 'bare') AND xact_start IS NOT NULL").Scan(&open)
		}
		// A listener that has lost its session is a holder while it dials.
		if lent == 0 && s.BufferedBytes == 0 && err == nil && open == 0 && len(r.connector.Holders()) == 0 {
			break
		}
		if time.Now().After(end) {
			r.fault(nil, "left behind", "%d bytes, active %d, waiting %d, %d transactions, holders %s, tasks %v, replicas %+v", s.BufferedBytes, s.Pool.Active, s.Pool.Waiting, open, holders(r.connector), r.connector.Tasks(), s.Replica.Pools)
			break
		}
	}
	if b := r.connector.BufferedRows(); len(r.connector.Holders())+len(b) > 0 {
		r.fault(nil, "left behind", "holders %s, rows in memory %v", holders(r.connector), b)
	}
	shed := s.Pool.Shed
	for _, p := range s.Replica.Pools {
		shed += p.Pool.Shed
	}
	if n := r.refusals.Load(); r.second == nil && r.river == nil && !r.rough() && int64(shed) != n {
		r.fault(nil, "figures", "%d refused, Stats has %d", n, shed)
	}
	pipelined := int64(0)
	for _, t := range r.tallies {
		pipelined += t.pipelined.Load()
	}
	n := int64(s.Pipelined)
	for _, p := range s.Replica.Pools {
		n += int64(p.Pool.Pipelined)
	}
	if pipelined > n {
		r.fault(nil, "figures", "%d pipelined, Stats has %d", pipelined, n)
	}
	if t := r.tempTables(); t != "" && !r.cfg.has("reset=off") && r.postgres() {
		r.fault(nil, "left behind", "temporary tables %s", t)
	}
}

func (r *run) tempTables() (names string) {
	_ = r.witness.QueryRow("SELECT coalesce(string_agg(relname, ','), '') FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'").Scan(&names)
	return names
}

// gone: the server has no session when all is closed.
func (r *run) gone() {
	for end := time.Now().Add(r.patience(15 * time.Second)); ; time.Sleep(5 * time.Millisecond) {
		total, text := 0, ""
		for _, s := range []*testbed.Server{r.Primary, r.Replicas[0], r.Replicas[1]} {
			for _, database := range []string{r.account.Database, r.other.Database} {
				n, what, _ := sessions(context.Background(), s, database)
				total, text = total+n, text+what
			}
		}
		if total == 0 {
			return
		}
		if time.Now().After(end) {
			r.fault(nil, "sessions stay", "%d: %s", total, text)
			return
		}
	}
}

type storedRow struct {
	times  int
	tenant string
}

func table(q interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, ctx context.Context, aggregate string) (map[int64]storedRow, error) {
	found, err := q.QueryContext(ctx, "SELECT id, count(*), coalesce("+aggregate+", '') FROM writes GROUP BY id")
	if err != nil {
		return nil, err
	}
	defer found.Close()
	there := map[int64]storedRow{}
	for found.Next() {
		var id int64
		var s storedRow
		if err := found.Scan(&id, &s.times, &s.tenant); err != nil {
			return nil, err
		}
		there[id] = s
	}
	return there, found.Err()
}

func (w *world) tenantsOf() string {
	if w.postgres() {
		return "string_agg(DISTINCT tenant, ',')"
	}
	return "group_concat(DISTINCT tenant)"
}

// check compares what acts were told with what the servers have.
func (r *run) check() {
	there, err := table(r.witness, context.Background(), r.tenantsOf())
	require.NoError(r, err)
	second, err := table(r.world.elsewhere, context.Background(), r.tenantsOf())
	require.NoError(r, err)
	if r.cfg.has("place=handle") {
		for _, x := range r.performances {
			for id := range x.fates {
				if there[id].times > 0 {
					r.fault(x, "stays after the sandbox", "write %d", id-x.base)
				}
			}
		}
		return
	}
	r.compareAll(there, second)
	var hot int64
	require.NoError(r, r.witness.QueryRow("SELECT n FROM hot").Scan(&hot))
	if n := r.hot.Load(); hot < n || hot > n && !r.rough() {
		r.fault(nil, "hot row", "%d changes acknowledged, %d there", n, hot)
	}
}

func (r *run) checkIn(base context.Context) {
	there, err := table(r.db, base, r.tenantsOf())
	if err != nil {
		r.fault(nil, "sandbox", "%v", err)
		return
	}
	r.compareAll(there, nil)
}

func (r *run) compareAll(there, second map[int64]storedRow) {
	for _, x := range r.performances {
		for id, f := range x.fates {
			of := there
			if x.elsewhere[id] {
				of = second
			}
			s := of[id]
			if x.end != finished && f == unsure && s.times <= 1 {
				continue
			}
			switch {
			case s.times > 1:
				r.fault(x, "executed twice", "write %d is there %d times; told: %s", id-x.base, s.times, x.text())
			case f == stored && s.times == 0:
				r.fault(x, "lost", "write %d was acknowledged; told: %s", id-x.base, x.text())
			case f == absent && s.times > 0:
				r.fault(x, "rolled back and there", "write %d; told: %s", id-x.base, x.text())
			}
			if s.times > 0 && r.postgres() && s.tenant != x.tenant && !strings.HasPrefix(x.act.name, "crowd") && x.act.name != "job" {
				r.fault(x, "wrong tenant", "write %d has %q instead of %q", id-x.base, s.tenant, x.tenant)
			}
			if s.tenant != "" {
				x.tally().tenants.Add(1)
			}
		}
	}
}
