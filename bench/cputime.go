package main

import (
	"syscall"
	"testing"
	"time"
)

const cpuMetric = "cpu-ns/op"

// timed adds the processor time that run takes to what it reports. What run
// needs to begin and end is in it, and next to nothing over many operations.
func timed(run func(*testing.B)) func(*testing.B) {
	return func(b *testing.B) {
		before := processorTime(b)
		run(b)
		b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), cpuMetric)
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fail(b, err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
