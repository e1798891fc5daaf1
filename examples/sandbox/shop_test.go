package shop

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// tests is how many tests there are: as many as a service of some size has.
const tests = 200

func TestShop(t *testing.T) {
	newShop := way(t)
	for i := range tests {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			testAnOrder(t, newShop(t))
		})
	}
}

// testAnOrder uses the same keys in each test, and commits.
func testAnOrder(t *testing.T, s Shop) {
	ctx := t.Context()
	stage(t, ctx, s)

	cents, err := s.Order(ctx, 1, 1, 1, 2)
	require.NoError(t, err)
	require.Equal(t, 3000, cents)
	_, err = s.Order(ctx, 2, 1, 1, 9)
	require.ErrorIs(t, err, ErrSoldOut)
	_, err = s.Order(ctx, 3, 1, 2, 1)
	require.NoError(t, err)

	open, err := s.Open(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, open)
	require.NoError(t, s.Paid(ctx, 1, cents))
	open, err = s.Open(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, open)
}

func stage(t *testing.T, ctx context.Context, s Shop) {
	t.Helper()
	for _, text := range []string{
		"INSERT INTO customers (id, name, mail) VALUES (1, 'Ada', 'ada@example.org')",
		"INSERT INTO products (id, category, name, cents, stock) VALUES (1, 1, 'Notes', 1500, 3), (2, 2, 'Waltz', 900, 1)",
	} {
		_, err := s.DB.ExecContext(ctx, text)
		require.NoError(t, err)
	}
}
