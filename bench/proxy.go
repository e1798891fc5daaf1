package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// distance is what a proxy adds on the way to a server.
type distance struct {
	// there and back are added to each direction, in milliseconds; their sum to a
	// round trip.
	there, back int
	// dial is added to the first answer of the server on each connection, in
	// milliseconds.
	dial int
}

// proxy stands before a server.
type proxy struct {
	*toxiproxy.Proxy
	first *firstAnswer // nil without a delay of the dial
}

// listen opens a proxy on a free port of 127.0.0.1.
func listen(target string, d distance) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{Proxy: toxiproxy.NewProxy(server, target, "127.0.0.1:0", target)}
	for _, toxic := range []struct {
		kind, stream string
		latency      int
	}{
		{"latency", "upstream", d.there},
		{"latency", "downstream", d.back},
		{"first_answer", "downstream", d.dial},
	} {
		if toxic.latency == 0 {
			continue
		}
		added, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
			`{"type": %q, "stream": %q, "attributes": {"latency": %d}}`, toxic.kind, toxic.stream, toxic.latency)))
		if err != nil {
			return nil, fmt.Errorf("proxy before %s: %w", target, err)
		}
		if first, ok := added.Toxic.(*firstAnswer); ok {
			p.first = first
		}
	}
	return p, p.Start()
}

// firstAnswer delays what the server says first: the dial takes longer, and
// nothing after it. It also counts the connections.
type firstAnswer struct {
	Latency int64 `json:"latency"` // milliseconds

	opened atomic.Int64
}

func init() { toxics.Register("first_answer", new(firstAnswer)) }

// Pipe passes on what the server says on one connection.
func (t *firstAnswer) Pipe(stub *toxics.ToxicStub) {
	t.opened.Add(1)
	select {
	case <-stub.Interrupt:
		return
	case c := <-stub.Input:
		if c == nil {
			stub.Close()
			return
		}
		select {
		case <-time.After(time.Duration(t.Latency) * time.Millisecond):
		case <-stub.Interrupt:
			stub.Output <- c // nothing is lost when the proxy is changed
			return
		}
		stub.Output <- c
	}
	new(toxics.NoopToxic).Pipe(stub)
}
