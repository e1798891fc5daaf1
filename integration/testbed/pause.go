package testbed

import (
	"context"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// Pause has all of the server's processes stand still: its connections stay, new
// ones are accepted, and nothing is answered. Only Kill ends it.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	docker, err := testcontainers.NewDockerClientWithOpts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer docker.Close()
	if _, err := docker.ContainerPause(context.Background(), s.container.GetContainerID(), client.ContainerPauseOptions{}); err != nil {
		t.Fatalf("testbed: pause: %v", err)
	}
}
