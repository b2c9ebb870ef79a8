package runtime

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// chunked returns the sizes of the messages that items of the given sizes in bytes make.
func chunked(t *testing.T, ctx context.Context, sizes []int, failAt int) (lengths []int, err error) {
	t.Helper()
	var items []*cri.Image
	for _, n := range sizes {
		items = append(items, &cri.Image{Id: strings.Repeat("x", n)})
	}
	var sent []*cri.Image
	err = inChunks(ctx, slices.Values(items), func(chunk []*cri.Image) error {
		if len(chunk) == 0 {
			t.Error("a message without an item")
		}
		if len(lengths) == failAt {
			return errors.New("the client has gone")
		}
		lengths, sent = append(lengths, len(chunk)), append(sent, chunk...)
		return nil
	})
	if err == nil && !slices.Equal(sent, items) {
		t.Errorf("sent %d items of %d, or in another order", len(sent), len(items))
	}
	return lengths, err
}

func TestChunks(t *testing.T) {
	small := slices.Repeat([]int{10}, 2*chunkItems+1)
	for name, c := range map[string]struct{ sizes, want []int }{
		"none":                       {nil, nil},
		"one":                        {[]int{10}, []int{1}},
		"as many as fit":             {small[:chunkItems], []int{chunkItems}},
		"more":                       {small, []int{chunkItems, chunkItems, 1}},
		"large ones":                 {[]int{chunkBytes / 2, chunkBytes / 2, 10}, []int{1, 2}},
		"one that is larger":         {[]int{10, 2 * chunkBytes, 10}, []int{1, 1, 1}},
		"the larger one comes first": {[]int{2 * chunkBytes, 10, 10}, []int{1, 2}},
	} {
		got, err := chunked(t, t.Context(), c.sizes, -1)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: messages of %v items, %v; want %v", name, got, err, c.want)
		}
	}
	if got, err := chunked(t, t.Context(), small, 1); err == nil || len(got) != 1 {
		t.Errorf("a client that goes: %v, %v; want the error after one message", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := chunked(t, ctx, small, -1); !errors.Is(err, context.Canceled) || len(got) != 0 {
		t.Errorf("a call that is cancelled: %v, %v", got, err)
	}
}
