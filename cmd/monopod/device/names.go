package device

import (
	"context"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/client"
)

// resourceNames are the resources that a node's devices are counted by.
func resourceNames(socket *string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (names []string, err error) {
		err = cli.WithNode(*socket, func(c *client.Client) error {
			list, err := c.Devices(ctx, "")
			for _, d := range list.Devices {
				names = append(names, d.Resource)
			}
			return err
		})
		return names, err
	}
}
