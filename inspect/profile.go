package inspect

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/pprofproto"
)

// profileTypes are the values of a sample, in the order of CallSite's fields.
var profileTypes = []pprofproto.ValueType{
	{Type: "connections", Unit: "count"},
	{Type: "waited", Unit: "nanoseconds"},
	{Type: "held", Unit: "nanoseconds"},
	{Type: "idle_while_pinned", Unit: "nanoseconds"},
}

// Profiler is an http.Handler with a profile of the places of the program that use the
// connections of some Connectors: see Profile. Allow must be set before its first request.
type Profiler struct {
	// Allow decides which requests are answered; others get status 403. Nil is
	// LoopbackOnly.
	Allow func(*http.Request) bool

	connectors []*pooldriver.Connector
	since      time.Time
}

// Profile returns a profile of connectors for go tool pprof:
//
//	go tool pprof -top http://localhost:6060/debug/pprof/pooldriver
//
// Its samples are call stacks that took connections. Their values are the number of
// connections taken and the nanoseconds that statements waited for them, held them, and
// held them without running a statement (idle_while_pinned, which pprof shows first). They
// are estimates from a sample of the checkouts: see pooldriver.Config.SampleStacks. A
// profile has everything since the Connectors were made. With ?seconds=N it has what happens
// in the N seconds after the request, 600 at most.
func Profile(connectors ...*pooldriver.Connector) *Profiler {
	return &Profiler{connectors: connectors, since: time.Now()}
}

// ServeHTTP writes the profile.
func (p *Profiler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !allowed(p.Allow, r) {
		refuse(w)
		return
	}
	began, before := p.since, map[string]pooldriver.CallSite{}
	if text := r.URL.Query().Get("seconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 1 || seconds > mostSeconds {
			http.Error(w, fmt.Sprintf("pooldriver/inspect: seconds wants a number from 1 to %d", mostSeconds), http.StatusBadRequest)
			return
		}
		began = time.Now()
		p.each(func(key string, s pooldriver.CallSite) { before[key] = s })
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done():
			return
		}
	}
	profile := pprofproto.Profile{
		Types:   profileTypes,
		Default: "idle_while_pinned",
		At:      time.Now(),
		For:     time.Since(began),
	}
	p.each(func(key string, s pooldriver.CallSite) {
		b := before[key]
		s.Count, s.Waited, s.Held, s.IdlePinned = s.Count-b.Count, s.Waited-b.Waited, s.Held-b.Held, s.IdlePinned-b.IdlePinned
		if s.Count != 0 || s.Held != 0 {
			profile.Samples = append(profile.Samples, sampleOf(s))
		}
	})
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="pooldriver.pb.gz"`)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_ = profile.Write(w) // the reader has gone
}

// mostSeconds bounds the time of a profile.
const mostSeconds = 600

// each calls fn for each place, with a key that identifies the place.
func (p *Profiler) each(fn func(key string, s pooldriver.CallSite)) {
	for i, c := range p.connectors {
		for _, s := range c.CallSites() {
			fn(fmt.Sprint(i, s.Stack), s)
		}
	}
}

func sampleOf(s pooldriver.CallSite) pprofproto.Sample {
	sample := pprofproto.Sample{Values: []int64{int64(s.Count), int64(s.Waited), int64(s.Held), int64(s.IdlePinned)}}
	for _, f := range s.Stack {
		sample.Stack = append(sample.Stack, pprofproto.Frame(f))
	}
	if len(s.Stack) == 0 {
		sample.Stack = []pprofproto.Frame{{Func: "(other places)"}}
	}
	return sample
}
