package image

import (
	"context"

	"monopod.dev/monopod/internal/runtime/imageservice"
)

// imageNames are the names of a node's images.
func imageNames(socket *string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (names []string, err error) {
		err = withImages(*socket, func(c imageservice.Client) error {
			all, err := c.List(ctx)
			for _, img := range all {
				names = append(names, img.Tags...)
			}
			return err
		})
		return names, err
	}
}
