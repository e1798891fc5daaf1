package task

import (
	"context"
	"fmt"
	"reflect"
	"sync"
)

// KeyFunc is Config.TaskKey. Contexts with the same key belong to one
// task, which ends when lifetime does. A nil key is no task.
type KeyFunc func(ctx context.Context) (key any, lifetime context.Context)

// NoKey, as a key, says that a KeyFunc could not tell the key.
type NoKey struct{ Why error }

// Keyed has the implicit tasks of a KeyFunc. The zero value has none.
type Keyed struct {
	tasks sync.Map // from key to *keyedTask
}

// keyedTask is the task of a key.
type keyedTask struct {
	*Task
	// until is done when the key may stand for another task. That is the end of the
	// lifetime, even if the task ends earlier: otherwise a later statement of the same
	// program would run in a new session without notice. For a lifetime that never
	// ends, it is the end of the task.
	until context.Context
}

// Find returns what ctx says of tasks, and the task of its key (Config.TaskKey). If the context itself says something of
// tasks, the key's task is only the task around (From). keyOf may be nil. Find writes to p, which
// is empty: most contexts have no place, and then there is nothing to copy.
func (k *Keyed) Find(ctx context.Context, keyOf KeyFunc, p *Place) error {
	value := ctx.Value(key{})
	if value == nil && keyOf == nil {
		return nil
	}
	*p = placeAt(value)
	if keyOf == nil || p.From != nil {
		return nil
	}
	t, err := k.task(keyOf(ctx))
	if p.Task == nil && !p.outside {
		p.Task = t
	} else {
		p.From = t
	}
	if p.Label == nil && t != nil {
		p.Label = t.label
	}
	return err
}

// task returns the task of a key, and begins it where there is none.
func (k *Keyed) task(key any, lifetime context.Context) (*Task, error) {
	if key == nil {
		return nil, nil
	}
	if no, ok := key.(NoKey); ok {
		return nil, no.Why
	}
	if lifetime == nil || !reflect.TypeOf(key).Comparable() {
		return nil, fmt.Errorf("pooldriver: Config.TaskKey has to return a comparable key and a lifetime; it gave a %T and a %T", key, lifetime)
	}
	for {
		if found, ok := k.tasks.Load(key); ok {
			t := found.(*keyedTask)
			if t.until.Err() == nil || lifetime.Err() != nil {
				return t.Task, nil
			}
			k.tasks.CompareAndDelete(key, t) // the key is used again, with another lifetime
		}
		t := &keyedTask{begin(lifetime, PlaceOf(lifetime), true), lifetime}
		if lifetime.Done() == nil {
			t.until = t.Task
		}
		if _, raced := k.tasks.LoadOrStore(key, t); raced {
			t.End()
			continue
		}
		context.AfterFunc(t.until, func() { k.tasks.CompareAndDelete(key, t) })
		return t.Task, nil
	}
}
