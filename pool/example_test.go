package pool_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/pool"
)

// client speaks to a server that answers each line with one line.
type client struct {
	net.Conn
	answers *bufio.Reader
}

func dial(address string) func(context.Context) (*client, error) {
	return func(ctx context.Context) (*client, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &client{conn, bufio.NewReader(conn)}, nil
	}
}

func (c *client) ask(ctx context.Context, question string) (string, error) {
	deadline, _ := ctx.Deadline() // none: the zero time, which is none here too
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, question); err != nil {
		return "", err
	}
	answer, err := c.answers.ReadString('\n')
	return strings.TrimSuffix(answer, "\n"), err
}

// serveLines is a little server that answers in capitals.
func serveLines(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			lines := bufio.NewScanner(conn)
			for lines.Scan() {
				fmt.Fprintln(conn, strings.ToUpper(lines.Text()))
			}
		}()
	}
}

// A pool of TCP clients. Twenty goroutines share two connections.
func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go serveLines(listener)

	clients, err := pool.New(pool.Config[*client]{
		Create:  dial(listener.Addr().String()),
		Destroy: func(c *client) { c.Close() },
		Check: func(ctx context.Context, c *client) error {
			_, err := c.ask(ctx, "ping")
			return err
		},
		Max:            2,
		AcquireTimeout: 5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answers := make([]string, 20)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			lease, err := clients.Acquire(ctx)
			if err != nil {
				answers[i] = err.Error()
				return
			}
			answers[i], err = lease.Value().ask(ctx, fmt.Sprint("question ", i))
			giveBack := lease.Release
			if err != nil {
				giveBack = lease.Discard // its state is unknown
			}
			if err := giveBack(); err != nil {
				answers[i] = err.Error()
			}
		})
	}
	all.Wait()
	fmt.Println(answers[7])

	s := clients.Stats()
	fmt.Println(s.Acquires, "acquires, at most 2 connections:", s.Creates <= 2)

	// Nothing is lent, so this does not wait for long.
	if err := clients.CloseContext(ctx); err != nil {
		fmt.Println(err)
	}
	_, err = clients.Acquire(ctx)
	fmt.Println(err)
	// Output:
	// QUESTION 7
	// 20 acquires, at most 2 connections: true
	// pool: closed
}

// An acquire that gets nothing says how the pool stood.
func ExampleAcquireError() {
	p, err := pool.New(pool.Config[string]{
		Create:         func(context.Context) (string, error) { return "the only one", nil },
		Max:            1,
		AcquireTimeout: time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	lease, err := p.AcquireNow(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = p.Acquire(context.Background())
	var e *pool.AcquireError
	if errors.As(err, &e) {
		fmt.Println(errors.Is(err, pool.ErrTimeout), e.Max, e.Active, e.Idle, e.Waiting)
	}
	fmt.Println(lease.Release())
	// Output:
	// true 1 1 0 0
	// <nil>
}

// A breaker that opens after three failures in a row and probes after ten
// seconds.
func ExampleConsecutiveFailures() {
	p, err := pool.New(pool.Config[int]{
		Create:   func(context.Context) (int, error) { return 0, fmt.Errorf("the server is down") },
		Strategy: pool.ConsecutiveFailures(3, 10*time.Second),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	for range 4 {
		_, err = p.Acquire(context.Background())
		fmt.Println(err, p.State())
	}
	// Output:
	// pool: create: the server is down active
	// pool: create: the server is down active
	// pool: create: the server is down inactive
	// pool: acquire: unavailable: the circuit breaker is open; the last create failed: the server is down (max 10, active 0, idle 0, waiting 0) inactive
}
