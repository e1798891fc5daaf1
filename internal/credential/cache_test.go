package credential

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestOneCallOfTheSourceServesManyDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c := New(func(context.Context) (dialects.Credential, error) {
			time.Sleep(time.Second) // a slow vault; the bubble's clock
			return dialects.Credential{User: "u", Password: fmt.Sprint(calls.Add(1)), Expires: time.Now().Add(time.Hour)}, nil
		}, func() {})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				cred, serial, changed, err := c.Get(t.Context(), 0)
				assert.NoError(t, err)
				assert.Equal(t, "1", cred.Password)
				assert.EqualValues(t, 1, serial)
				assert.False(t, changed)
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, calls.Load())

		time.Sleep(time.Hour)
		cred, _, changed, err := c.Get(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, "2", cred.Password)
		require.True(t, changed)
		c.Close()
	})
}

func TestARefusedCredentialIsAskedForOnceMore(t *testing.T) {
	n := 0
	c := New(func(context.Context) (dialects.Credential, error) {
		n++
		return dialects.Credential{User: "u", Password: fmt.Sprint(n), Expires: time.Now().Add(time.Hour)}, nil
	}, func() {})
	_, first, _, err := c.Get(t.Context(), 0)
	require.NoError(t, err)
	cred, second, changed, err := c.Get(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, "2", cred.Password)
	require.True(t, changed)
	// Another dial that was refused the first one finds the second there.
	cred, _, _, err = c.Get(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, "2", cred.Password)
	require.EqualValues(t, 2, second)
	require.Equal(t, 2, n)
}

func TestACredentialThatDoesNotSayWhenItExpiresIsAskedForAtEachDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		password := "old"
		c := New(func(context.Context) (dialects.Credential, error) {
			calls.Add(1)
			time.Sleep(time.Second)
			return dialects.Credential{User: "u", Password: password}, nil
		}, func() {})
		dial := func(want string, wantChanged bool) {
			cred, _, changed, err := c.Get(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, want, cred.Password)
			require.Equal(t, wantChanged, changed)
		}
		dial("old", false)
		dial("old", false)
		require.EqualValues(t, 2, calls.Load())
		password = "new" // and the old one may still be taken
		dial("new", true)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { dial("new", false) })
		}
		wg.Wait()
		require.EqualValues(t, 4, calls.Load(), "those that wait together share a call")
		require.Nil(t, c.timer, "nothing to renew by the clock")
	})
}

func TestAChangeThatComesSoonAfterAnotherReplacesConnectionsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		password := "first"
		c := New(func(context.Context) (dialects.Credential, error) {
			return dialects.Credential{User: "u", Password: password}, nil
		}, func() {})
		changes := func() bool {
			_, _, changed, err := c.Get(t.Context(), 0)
			require.NoError(t, err)
			return changed
		}
		require.False(t, changes())
		password = "second"
		require.True(t, changes())
		time.Sleep(undatedPause / 2)
		password = "third"
		require.False(t, changes(), "each dial's may be another")
		time.Sleep(undatedPause)
		require.True(t, changes(), "connections of the second are still there")
		time.Sleep(undatedPause)
		require.False(t, changes())
	})
}

func TestAFailureOfTheSourceIsSharedByTheDialsThatWaitedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		down := errors.New("vault is sealed")
		c := New(func(context.Context) (dialects.Credential, error) {
			calls.Add(1)
			time.Sleep(time.Second)
			return dialects.Credential{}, down
		}, func() {})
		began := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, _, _, err := c.Get(t.Context(), 0)
				assert.ErrorIs(t, err, down)
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, calls.Load())
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestAnotherDialsEndIsNotAFailureOfTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(func(ctx context.Context) (dialects.Credential, error) {
			select {
			case <-ctx.Done():
				return dialects.Credential{}, ctx.Err()
			case <-time.After(time.Second):
				return dialects.Credential{User: "u", Password: "p"}, nil
			}
		}, func() {})
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		go func() { _, _, _, _ = c.Get(short, 0) }()
		synctest.Wait()
		cred, _, _, err := c.Get(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, "p", cred.Password)
	})
}

func TestAFailingSourceFailsTheDialUnlessTheLastCredentialIsStillGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := false
		down := errors.New("vault is sealed")
		c := New(func(context.Context) (dialects.Credential, error) {
			if fails {
				return dialects.Credential{}, down
			}
			return dialects.Credential{User: "u", Password: "p", Expires: time.Now().Add(10 * time.Minute)}, nil
		}, func() {})
		_, serial, _, err := c.Get(t.Context(), 0)
		require.NoError(t, err)
		fails = true
		time.Sleep(9*time.Minute + 30*time.Second)
		_, _, _, err = c.Get(t.Context(), 0)
		require.NoError(t, err, "renewal is due but the old one is good")
		_, _, _, err = c.Get(t.Context(), serial)
		require.ErrorIs(t, err, down, "the server has refused it")
		time.Sleep(time.Minute)
		_, _, _, err = c.Get(t.Context(), 0)
		require.ErrorIs(t, err, down)
	})
}

func TestASourceThatGivesAnExpiredCredentialIsAnError(t *testing.T) {
	c := New(func(context.Context) (dialects.Credential, error) {
		return dialects.Credential{Password: "p", Expires: time.Now().Add(-time.Minute)}, nil
	}, func() {})
	_, _, _, err := c.Get(t.Context(), 0)
	require.ErrorContains(t, err, "expired 1m0s ago")
}

func TestWaitingForTheSourceEndsWithTheContext(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	c := New(func(context.Context) (dialects.Credential, error) {
		close(entered)
		<-leave
		return dialects.Credential{}, nil
	}, func() {})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _, _ = c.Get(context.Background(), 0)
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, _, err := c.Get(ctx, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "waiting for the credential source")
	close(leave)
	<-done
}

func TestASourceThatHangsKeepsNobodyWaitingWhileTheLastCredentialIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *Cache
		var hang atomic.Bool
		c = New(func(ctx context.Context) (dialects.Credential, error) {
			if hang.Load() {
				<-ctx.Done()
				return dialects.Credential{}, ctx.Err()
			}
			return dialects.Credential{User: "u", Password: "p", Expires: time.Now().Add(10 * time.Minute)}, nil
		}, func() {
			ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
			defer cancel()
			_, _ = c.Renew(ctx)
		})
		_, _, _, err := c.Get(t.Context(), 0)
		require.NoError(t, err)
		hang.Store(true)
		time.Sleep(9*time.Minute + time.Second)
		began := time.Now()
		for range 3 {
			cred, _, _, err := c.Get(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, "p", cred.Password)
		}
		require.Zero(t, time.Since(began))
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, _, err = c.Get(ctx, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "credential source")
		c.Close()
	})
}

func TestACredentialInItsLastMinuteIsRenewedThoughNobodyWasConnectedWhenThatBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		var connected atomic.Bool
		var c *Cache
		c = New(func(context.Context) (dialects.Credential, error) {
			return dialects.Credential{User: "u", Password: fmt.Sprint(calls.Add(1)), Expires: time.Now().Add(10 * time.Minute)}, nil
		}, func() {
			if connected.Load() {
				_, err := c.Renew(c.ctx)
				require.NoError(t, err)
			}
		})
		_, _, _, err := c.Get(t.Context(), 0)
		require.NoError(t, err)
		time.Sleep(9*time.Minute + time.Second)
		require.EqualValues(t, 1, calls.Load())
		connected.Store(true)
		_, _, _, err = c.Get(t.Context(), 0)
		require.NoError(t, err)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 2, calls.Load())
		c.Close()
	})
}

func TestRenewalIsEarlyButNotAtOnce(t *testing.T) {
	require.Equal(t, 59*time.Minute, renewal(time.Hour))
	require.Equal(t, 8*time.Second, renewal(10*time.Second))
}

func TestCallsInTurnNeverOverlap(t *testing.T) {
	require.Nil(t, InTurn(nil))
	synctest.Test(t, func(t *testing.T) {
		var running, calls atomic.Int32
		source := InTurn(func(context.Context) (c dialects.Credential, err error) {
			assert.EqualValues(t, 1, running.Add(1))
			time.Sleep(time.Second)
			running.Add(-1)
			calls.Add(1)
			return dialects.Credential{User: "u", Expires: time.Now().Add(time.Hour)}, nil
		})
		caches := []*Cache{New(source, func() {}), New(source, func() {}), New(source, func() {})} // of a primary and its replicas
		var wg sync.WaitGroup
		for _, c := range caches {
			wg.Go(func() {
				_, _, _, err := c.Get(t.Context(), 0)
				assert.NoError(t, err)
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		synctest.Wait()
		_, err := source(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "it waits no longer than it may")
		wg.Wait()
		require.EqualValues(t, 3, calls.Load())
		for _, c := range caches {
			c.Close()
		}
	})
}
