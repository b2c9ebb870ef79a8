package store

import (
	"testing"
	"time"
)

func TestCacheTimersEnd(t *testing.T) {
	timer := cacheClock{}.NewTimer(time.Millisecond)
	<-timer.C()
	timer.Reset(2 * time.Millisecond)
	<-timer.C()
}
