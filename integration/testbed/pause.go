package testbed

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// pauseTries: on a busy machine the kernel needs longer to freeze a server that has just
// started processes than Docker waits for it. Docker then lets it run on.
const pauseTries = 20

// Pause has all of the server's processes stand still: its connections stay, new
// ones are accepted, and nothing is answered. Kill or Wake ends it.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	docker, err := testcontainers.NewDockerClientWithOpts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer docker.Close()
	for range pauseTries {
		_, err = docker.ContainerPause(context.Background(), s.container.GetContainerID(), client.ContainerPauseOptions{})
		if err == nil {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Fatalf("testbed: pause, %d times: %v", pauseTries, err)
}

// Wake has a paused server go on.
func (s *Server) Wake(t testing.TB) {
	t.Helper()
	docker, err := testcontainers.NewDockerClientWithOpts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer docker.Close()
	if _, err := docker.ContainerUnpause(context.Background(), s.container.GetContainerID(), client.ContainerUnpauseOptions{}); err != nil {
		t.Fatalf("testbed: wake: %v", err)
	}
}

// StopProcess has one process of the server stand still, until the returned function is called.
func (s *Server) StopProcess(t testing.TB, process int) (goOn func()) {
	t.Helper()
	send := func(signal string) {
		code, _, err := s.container.Exec(context.Background(), []string{"sh", "-c", fmt.Sprintf("kill -%s %d", signal, process)})
		if err != nil || code != 0 {
			t.Errorf("testbed: %s to process %d: exit code %d, %v", signal, process, code, err)
		}
	}
	send("STOP")
	return sync.OnceFunc(func() { send("CONT") })
}
