package controllers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"monopod.dev/monopod/internal/controllers/catalog"
)

// TestEachIsMade: each row of the catalog has a factory, and each factory a row.
func TestEachIsMade(t *testing.T) {
	made, listed := slices.Sorted(maps.Keys(factories())), slices.Sorted(slices.Values(catalog.Names()))
	if !slices.Equal(made, listed) {
		t.Errorf("factories make\n%v, and the catalog has\n%v", made, listed)
	}
}

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
