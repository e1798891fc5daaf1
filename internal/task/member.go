package task

import (
	"context"
	"fmt"
	"time"
)

// Member is what a task has on one connector.
type Member interface {
	// TaskEnded tells the member that the task has ended. From now on it must refuse
	// statements. The context of the task is not done yet. TaskEnded must not block.
	TaskEnded()
	// WrapUp gives back what the task has. It returns when that is done, or takes too
	// long. The task calls it once, after TaskEnded and after the context is done.
	WrapUp()
}

// membership is a member with the key under which it is found. It never changes.
type membership struct {
	key    any
	member Member
}

// Member returns the task's member for key, and creates it first where there is none.
// The error says that the task has ended. create is called under the task's lock, so
// it must not use the task. The task ends when limit has passed since its first member
// was created. The shortest limit of all members counts; 0 is no limit.
func (t *Task) Member(key any, limit time.Duration, create func() Member) (Member, error) {
	if m := t.first.Load(); m != nil && m.key == key && t.Err() == nil {
		return m.member, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.Err() != nil {
		return nil, t.EndedError()
	}
	if t.use == nil {
		t.use = &use{number: numbers.Add(1), begun: time.Now(), wrappedUp: make(chan struct{})}
		t.use.unwatch = context.AfterFunc(t.Context, func() { t.finish(nil) })
	}
	if m := t.use.member(key); m != nil {
		return m, nil
	}
	m := create()
	t.use.members = append(t.use.members, membership{key, m})
	if len(t.use.members) == 1 {
		t.first.Store(&t.use.members[0]) // a longer slice has a copy of it
	}
	t.limitLocked(limit)
	return m, nil
}

// MemberOn returns the task's member for key, nil where there is none.
func (t *Task) MemberOn(key any) Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.use == nil {
		return nil
	}
	return t.use.member(key)
}

func (u *use) member(key any) Member {
	for _, m := range u.members {
		if m.key == key {
			return m.member
		}
	}
	return nil
}

// limitLocked ends the task when limit has passed since its first use, unless a
// shorter limit does.
func (t *Task) limitLocked(limit time.Duration) {
	u := t.use
	if limit <= 0 || u.limit != 0 && u.limit <= limit {
		return
	}
	u.limit = limit
	if u.timer != nil {
		u.timer.Stop()
	}
	u.timer = time.AfterFunc(time.Until(u.begun.Add(limit)), func() {
		t.finish(fmt.Errorf("%w: it has used a database for longer than pool_task_timeout, which is %v", ErrEnded, limit))
	})
}
