package testbed

import (
	"context"
	"testing"

	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// Network is one in which containers find each other by their names. Tests reach
// them by their published ports, as ever.
type Network struct {
	docker *testcontainers.DockerNetwork
}

// NewNetwork makes a network that ends with the test.
func NewNetwork(t testing.TB) *Network {
	t.Helper()
	if err := prepare(); err != nil {
		t.Fatal(err)
	}
	docker, err := tcnetwork.New(t.Context(), tcnetwork.WithLabels(map[string]string{OwnerLabel: owner()}))
	if err != nil {
		t.Fatalf("testbed: network: %v", err)
	}
	t.Cleanup(func() {
		if err := docker.Remove(context.Background()); err != nil {
			t.Errorf("testbed: remove network: %v", err)
		}
	})
	return &Network{docker: docker}
}
