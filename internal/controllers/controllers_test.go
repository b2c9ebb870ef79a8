package controllers

import (
	"context"
	"errors"
	"testing"
)

// TestNoErrorOfTheEnd: a controller that finds everything ended is none that failed.
func TestNoErrorOfTheEnd(t *testing.T) {
	failed := errors.New("the informer has stopped")
	running, end := context.WithCancel(t.Context())
	if err := unlessOver(running, failed); !errors.Is(err, failed) {
		t.Errorf("before the end: %v", err)
	}
	if err := unlessOver(running, nil); err != nil {
		t.Errorf("without one: %v", err)
	}
	end()
	if err := unlessOver(running, failed); err != nil {
		t.Errorf("at the end: %v", err)
	}
}
