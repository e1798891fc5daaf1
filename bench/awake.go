package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A processor that has nothing to do is halted, and a virtual one takes 20 to 60 µs to
// come back: twice for each query, the client's and the server's, and more than what is
// to be compared. So while they stand apart a process of the lowest kind (SCHED_IDLE,
// see sched(7)) keeps each of them busy, and gives way at once to whatever else there is.

// sitter is the environment variable that names the processor to keep awake.
const sitter = "POOLDRIVER_BENCH_KEEPS_AWAKE"

// keepAwake keeps the processors from being halted until rest is called.
func keepAwake(processors []int) (rest func(), err error) {
	var ends []func()
	rest = func() {
		for _, end := range ends {
			end()
		}
	}
	for _, p := range processors {
		end, err := startSitter(p)
		if err != nil {
			rest()
			return nil, fmt.Errorf("processor %d cannot be kept awake (-awake=false measures without): %w", p, err)
		}
		ends = append(ends, end)
	}
	return rest, nil
}

// startSitter starts the process that keeps a processor awake, and returns when it does.
func startSitter(processor int) (end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := exec.Command(self)
	s.Env = append(os.Environ(), sitter+"="+strconv.Itoa(processor))
	s.Stderr = os.Stderr
	s.SysProcAttr = &unix.SysProcAttr{Setsid: true} // for sit
	if _, err := s.StdinPipe(); err != nil {        // its end tells the process of ours
		return nil, err
	}
	begun, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	end = func() {
		_ = s.Process.Kill()
		_ = s.Wait()
	}
	if _, err := begun.Read(make([]byte, 1)); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// sit is all that a process does that keeps a processor awake. It ends with the
// process that has started it.
func sit(processor string) error {
	p, err := strconv.Atoi(processor)
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1)
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	if err := keepTo([]int{p}, 2); err != nil { // the other is for who waits for the end
		return err
	}
	if err := yieldGroup(); err != nil {
		return err
	}
	idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := eachThread(func(id int) error { return unix.SchedSetAttr(id, &idle, 0) }); err != nil {
		return err
	}
	if _, err := os.Stdout.Write([]byte{'.'}); err != nil {
		return err
	}
	// An atomic addition waits more than it works, and leaves a twin of the
	// processor (hyper-threading) most of what they share.
	var n atomic.Uint64
	for {
		n.Add(1)
	}
}

// yieldGroup has the group of this process give way, too: it is the lowest among its own
// only, the containers are in another, and groups share alike. Of a session's group
// (autogroup, see sched(7)) that can be asked for. Where there are none, or control
// groups in their place (systemd), there is nothing to ask, and a server that is at work
// for long is interrupted.
func yieldGroup() error {
	const file = "/proc/self/autogroup"
	for {
		err := os.WriteFile(file, []byte("19"), 0)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case !errors.Is(err, unix.EAGAIN): // once in 100 ms, all processes together
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
