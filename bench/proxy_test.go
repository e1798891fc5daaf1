package main

import (
	"io"
	"net"
	"testing"
	"time"
)

// echo answers with what it is sent, and greets first.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = conn.Write([]byte("!"))
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

// roundTrips returns how long the greeting takes, and the shortest of ten round trips.
func roundTrips(t *testing.T, addr string) (greeting, trip time.Duration) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var b [1]byte
	from := time.Now()
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		t.Fatal(err)
	}
	greeting, trip = time.Since(from), time.Hour
	for range 10 {
		from := time.Now()
		if _, err := conn.Write(b[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			t.Fatal(err)
		}
		trip = min(trip, time.Since(from))
	}
	return greeting, trip
}

func TestRoundTripIsAtLeastTheDistance(t *testing.T) {
	took, err := distance{there: 2, back: 3}.roundTrip()
	if err != nil || took < float64(5*time.Millisecond) {
		t.Errorf("%s, %v", nanos(took), err)
	}
}

func TestProxyAddsItsDistance(t *testing.T) {
	for _, test := range []struct {
		distance       distance
		greeting, trip time.Duration // at least
	}{
		{distance{back: 1}, 0, time.Millisecond},
		{distance{there: 2, back: 3}, 0, 5 * time.Millisecond},
		{distance{dial: 500}, 500 * time.Millisecond, 0},
	} {
		p, err := listen(echo(t), test.distance)
		if err != nil {
			t.Fatal(err)
		}
		greeting, trip := roundTrips(t, p.Listen)
		p.Stop()
		if greeting < test.greeting || trip < test.trip {
			t.Errorf("%+v: greeting after %v, round trip %v", test.distance, greeting, trip)
		}
		if p.first != nil && p.first.opened.Load() != 1 {
			t.Errorf("%+v: %d connections counted", test.distance, p.first.opened.Load())
		}
		if test.distance.dial > 0 && trip >= test.greeting {
			t.Errorf("%+v: the dial's delay is in the round trip, too: %v", test.distance, trip)
		}
	}
}
