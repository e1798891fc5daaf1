package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// describeProxies says how long round trips through the proxies really take: a
// proxy's timers, and the proxy itself, add to what its name says.
func describeProxies() string {
	var words []string
	for _, d := range distances {
		took, err := d.roundTrip()
		if err != nil {
			return "A round trip through them: " + unmeasured + ", " + oneLine(err) + "."
		}
		words = append(words, fmt.Sprintf("%s at + %d ms", nanos(took), d.there+d.back))
	}
	return "A round trip of one byte through the proxies took " + strings.Join(words, ", ") + "."
}

// roundTrip is the median of some round trips through a proxy to an echo.
func (d distance) roundTrip() (float64, error) {
	const trips = 50
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	go echoOnce(l)
	p, err := listen(l.Addr().String(), d)
	if err != nil {
		return 0, err
	}
	defer p.Stop()
	conn, err := net.Dial("tcp", p.Listen)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var took []float64
	for range trips {
		var b [1]byte
		from := time.Now()
		if _, err := conn.Write(b[:]); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(from)))
	}
	return median(took), nil
}

// echoOnce answers one connection with what it says.
func echoOnce(l net.Listener) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(conn, conn) // ends with the connection
}
