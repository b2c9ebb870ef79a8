package runtime

import (
	"context"
	"slices"
	"testing"
)

func TestSideBySide(t *testing.T) {
	for _, n := range []int{0, 1, readAtOnce - 1, readAtOnce, readAtOnce + 1, 5 * readAtOnce} {
		items, want := make([]int, n), []int(nil)
		for i := range items {
			if items[i] = i; i%3 != 0 {
				want = append(want, i)
			}
		}
		var got []int
		for i := range sideBySide(t.Context(), items, func(i *int) *int {
			if *i%3 == 0 {
				return nil // it is gone
			}
			return i
		}) {
			got = append(got, *i)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d items: %v, want %v", n, got, want)
		}
	}

	itself := func(i *int) *int { return i }
	items := make([]int, 3*readAtOnce)
	told := 0
	for range sideBySide(t.Context(), items, itself) {
		if told++; told == readAtOnce+1 {
			break
		}
	}
	if told != readAtOnce+1 {
		t.Errorf("%d are told to a reader that has stopped", told)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told = 0
	for range sideBySide(ctx, items, itself) {
		told++
		cancel()
	}
	if told != readAtOnce {
		t.Errorf("%d are told, want the %d that were read before the end of the call", told, readAtOnce)
	}
	for range sideBySide(ctx, items, itself) {
		t.Error("a list goes on after its call has ended")
	}
}
