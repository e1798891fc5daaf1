package inspect

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/observe/metrics"
	"github.com/pooldriver/pooldriver/pool"
)

//go:embed page.html page.css page.js
var assets embed.FS

var (
	style  = asset("page.css")
	script = asset("page.js")

	page = template.Must(template.New("page.html").Funcs(template.FuncMap{
		"brief":  Brief,
		"site":   site,
		"left":   func(t time.Time) string { return Brief(time.Until(t)) },
		"since":  func(t time.Time) string { return Brief(time.Since(t)) },
		"conns":  conns,
		"frames": func(f pooldriver.Frame) string { return f.Func + "\n  " + f.File + ":" + strconv.Itoa(f.Line) },
		"key":    key,
		"dec":    func(n uint64) string { return strconv.FormatUint(n, 10) },
		"style":  func() template.CSS { return template.CSS(style) },
		"script": func() template.JS { return template.JS(script) },
	}).ParseFS(assets, "page.html"))

	// policy lets the page run its own style and script, talk to its own origin, and
	// nothing else.
	policy = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'; connect-src 'self'; " +
		"style-src '" + hash(style) + "'; script-src '" + hash(script) + "'"
)

func asset(name string) string {
	text, err := assets.ReadFile(name)
	if err != nil {
		panic("inspect: broken invariant: " + err.Error()) // the page is part of the program
	}
	return string(text)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// maxShown bounds each table of the page; the JSON has more.
const maxShown = 100

// maxSlots is the largest number of connections that are drawn one by one.
const maxSlots = 200

// view is a Pool as the page shows it.
type view struct {
	Pool
	Number int
	Flush  bool   // the button is shown
	Slots  []slot // one for each connection that the pool may have; nil: too many
	// Queue is how many waiters are drawn. QueueMore is how many are not drawn.
	Queue, QueueMore int
	Longest          time.Duration // the longest wait of a present waiter
	Breaker          string        // empty: there is none
	BreakerOpen      bool
	FailedNow        uint64 // statements that got no connection in the last seconds
	Failed           string // why, in the last minute
	Figures          []metrics.Printed
	Holdings         []holding
	Groups           []group // of waiters, by label
	Others           []Other
	Reads            string
	Closed           []reason
	Hosts            []host
	Drawn            []line                                                                 // the last minute
	More             struct{ Labels, Holders, Waiters, CallSites, Tasks, BufferedRows int } // how many are not shown
}

// slot is the drawing of one connection.
type slot struct{ Class, Title string }

type reason struct {
	Name  string
	Count uint64
}

type host struct {
	Name  string
	InUse int
}

func writePage(w http.ResponseWriter, s Snapshot, flush bool) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	data := struct {
		At      time.Time
		Level   string // the worst one; empty: there is no pool
		Several bool
		Views   []view // the worst first
	}{At: s.At, Several: len(s.Pools) > 1, Views: make([]view, len(s.Pools))}
	for i, p := range s.Pools {
		data.Views[i] = viewOf(i, p)
		data.Views[i].Flush = flush
		if rank(p.Verdict.Level) > rank(data.Level) {
			data.Level = p.Verdict.Level
		}
	}
	slices.SortStableFunc(data.Views, func(a, b view) int { return cmp.Compare(rank(b.Verdict.Level), rank(a.Verdict.Level)) })
	_ = page.Execute(w, data) // the reader has gone
}

// replicaHolders is how many holders of connections of replicas the page has.
const replicaHolders = 20

func viewOf(number int, p Pool) view {
	// Holders that do not use their connection come first: people look for them.
	slices.SortStableFunc(p.Holders, func(a, b pooldriver.Holder) int { return cmp.Compare(b.Idle, a.Idle) })
	v := view{Pool: p, Number: number}
	v.Longest, v.Slots = longestWait(p), slotsOf(p)
	v.Queue = min(p.Stats.Pool.Waiting, 40)
	v.QueueMore = p.Stats.Pool.Waiting - v.Queue
	if hasBreaker(p) {
		v.Breaker, v.BreakerOpen = p.Stats.Pool.State.String(), p.Stats.Pool.State != pool.Active
	}
	for _, why := range refusals {
		v.FailedNow += p.Window.Failed[why]
	}
	v.Failed, v.Figures = Failures(p.Recent.Failed), metrics.Print(&metrics.Snapshot{Stats: p.Stats, Holders: p.Holders, At: p.At})
	v.Groups = groupsOf(p.Waiters)
	for name, n := range p.Stats.Closed {
		if n > 0 {
			v.Closed = append(v.Closed, reason{words(name), n})
		}
	}
	slices.SortFunc(v.Closed, func(a, b reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	v.Hosts = hostsOf(p.Holders)
	v.Drawn = drawLines(p.Lines)
	v.Others, v.Reads = OthersOf(p), ReadsOf(p)
	v.More.Labels = cut(&v.Labels)
	v.Holdings = holdingsOf(slices.Concat(p.Holders, atMost(replicaHolders, p.ReplicaHolders)))
	v.More.Holders = cut(&v.Holdings)
	bound(v.Holdings, func(h *holding) *[]pooldriver.Holder { return &h.Holders })
	v.More.Waiters = cut(&v.Groups)
	bound(v.Groups, func(g *group) *[]pooldriver.Waiter { return &g.Waiters })
	v.More.CallSites = cut(&v.CallSites)
	v.More.Tasks = cut(&v.Tasks)
	v.More.BufferedRows = cut(&v.BufferedRows)
	return v
}

// hasBreaker reports whether p has a circuit breaker.
func hasBreaker(p Pool) bool {
	return p.Stats.Pool.State != pool.Active || slices.ContainsFunc(p.Settings, func(s pooldriver.Setting) bool { return s.Name == "pool_breaker_failures" })
}

// cut shortens list to maxShown entries, and returns how many entries are not shown.
func cut[T any](list *[]T) int {
	all := len(*list)
	*list = atMost(maxShown, *list)
	return all - len(*list)
}

func slotsOf(p Pool) []slot {
	s := p.Stats.Pool
	if s.Max > maxSlots {
		return nil
	}
	slots := make([]slot, 0, s.Max)
	for _, h := range p.Holders {
		class, what := "pinned", "held, idle"
		if h.Running {
			class, what = "running", "a statement runs"
		}
		slots = append(slots, slot{class, strings.TrimSpace(h.Label+" "+what) + ", " + string(h.Pin)})
	}
	add := func(n int, class, title string) {
		for range min(n, s.Max-len(slots)) {
			slots = append(slots, slot{class, title})
		}
	}
	add(s.Creating, "creating", "is being opened")
	add(s.Active-s.Creating-len(p.Holders), "busy", "is being checked, cleaned or closed")
	add(s.Idle, "idle", "in the pool")
	add(s.Max, "free", "not open")
	return slots
}

// hostsOf counts the connections in use for each server, if the DSN names several.
func hostsOf(holders []pooldriver.Holder) (hosts []host) {
	for _, h := range holders {
		if h.Host != "" {
			entry(&hosts, func(o host) bool { return o.Name == h.Host }, host{Name: h.Host}).InUse++
		}
	}
	slices.SortFunc(hosts, func(a, b host) int { return cmp.Compare(a.Name, b.Name) })
	return hosts
}

// Brief prints a duration with three digits at most.
func Brief(d time.Duration) string {
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			if unit >= time.Minute {
				return d.Round(unit / 60).String()
			}
			return d.Round(unit / time.Duration(digits(d/unit))).String()
		}
	}
	return d.String()
}

// digits returns 100, 10 or 1: the factor by which n becomes a number of three digits.
func digits(n time.Duration) int {
	switch {
	case n < 10:
		return 100
	case n < 100:
		return 10
	}
	return 1
}

// site is the innermost call of a stack, short: its function, file and line.
func site(stack []pooldriver.Frame) string {
	if len(stack) == 0 {
		return ""
	}
	f := stack[0]
	return path.Base(f.Func) + " (" + path.Base(f.File) + ":" + strconv.Itoa(f.Line) + ")"
}

func conns(numbers []uint64) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = "#" + strconv.FormatUint(n, 10)
	}
	return strings.Join(texts, ", ")
}
