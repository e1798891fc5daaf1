package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// The cold contest: what lies between the program and a driver that asks another process, on the same processor. That process
// has used the caches meanwhile, as a server has, so each function and each line of data costs more than on the null driver.

const (
	coldName = "query, cold: the driver asks another process on this processor"
	// echoer is the environment variable that makes a process the one that is asked.
	echoer = "POOLDRIVER_BENCH_ECHOES"
	// coldMemory is what that process walks through for each answer: more than the processor's nearest caches hold.
	coldMemory = 1 << 20
)

func coldContest() contest {
	v := venue{name: sectionNull, entrants: nullEntrants(coldConnector{fakedb.NullConnector{Rows: 1}}, nullTexts)}
	return v.contest(coldName, everywhere, 1, warm(query), repeat(query))
}

type coldConnector struct{ fakedb.NullConnector }

// Connect keeps this process to one processor, and starts the other process there.
func (c coldConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.NullConnector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	all, err := processors()
	if err != nil {
		return nil, err
	}
	if err := keepTo(all[:1], 1); err != nil {
		return nil, err
	}
	asks, err := startEchoer(ctx)
	return &coldConn{inner.(nullConn), asks}, err
}

// nullConn is what a connection of fakedb.NullConnector can do.
type nullConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.SessionResetter
	driver.Validator
	driver.Pinger
}

type coldConn struct {
	nullConn
	asks net.Conn
}

func (c *coldConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	var b [1]byte
	if _, err := c.asks.Write(b[:]); err != nil {
		return nil, err
	}
	if _, err := c.asks.Read(b[:]); err != nil {
		return nil, err
	}
	return c.nullConn.QueryContext(ctx, text, args)
}

func (c *coldConn) Close() error { return c.asks.Close() }

// startEchoer returns the way to a process that ends when it is closed.
func startEchoer(ctx context.Context) (net.Conn, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	own, its := os.NewFile(uintptr(ends[0]), "own"), os.NewFile(uintptr(ends[1]), "its")
	defer own.Close() // FileConn has its own
	defer its.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	e := exec.CommandContext(context.WithoutCancel(ctx), self)
	e.Env = append(os.Environ(), echoer+"=3")
	e.Stderr, e.ExtraFiles = os.Stderr, []*os.File{its}
	if err := e.Start(); err != nil {
		return nil, err
	}
	go func() { _ = e.Wait() }()
	return net.FileConn(own)
}

// answer answers each byte, when it has been through coldMemory.
func answer(file string) error {
	fd, err := strconv.Atoi(file)
	if err != nil {
		return err
	}
	memory := make([]uint64, coldMemory/8)
	var b [1]byte
	for {
		n, err := unix.Read(fd, b[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for i := range memory {
			memory[i] += uint64(i)
		}
		if _, err := unix.Write(fd, b[:]); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}
