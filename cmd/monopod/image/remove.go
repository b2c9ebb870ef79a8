package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/runtime/imageservice"
)

func newRemoveCommand(socket *string) *cobra.Command {
	var force, missing bool
	cmd := &cobra.Command{
		Use:     "rm IMAGE...",
		Aliases: []string{"remove", "rmi"},
		Short:   "Remove images",
		Long: `Removes images. A name is removed from its image; the image itself is removed with its last tag. An id removes
the image with all its names. When the command returns, the space of layers that no other image needs is free.

An image that a container uses is not removed, unless you give --force: then the container keeps the layers, and
their space becomes free when the container is removed. If some of the images cannot be removed, the others are.`,
		Example: `  monopod image rm app:1 app:2
  monopod image rm 4401c54e6d22
  monopod image ls -q | xargs -r monopod image rm --ignore-missing`,
		Args: someImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withImages(*socket, func(c imageservice.Client) error {
				return removeImages(cmd.Context(), c, imageservice.RemoveRequest{Images: args, Force: force, Missing: missing})
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also remove images that containers use")
	cli.CompleteNames(cmd, true, imageNames(socket))
	cmd.Flags().BoolVar(&missing, "ignore-missing", false, "do not fail if an image does not exist")
	return cmd
}

func removeImages(ctx context.Context, c imageservice.Client, req imageservice.RemoveRequest) error {
	var errs []error
	freed := uint64(0)
	for _, ref := range req.Images {
		one := req
		one.Images = []string{ref}
		r, err := c.Remove(ctx, one)
		if err != nil {
			errs = append(errs, cli.RPCError(c.Conn, err))
			continue
		}
		for _, n := range r.Untagged {
			fmt.Println("untagged", n)
		}
		for _, id := range r.IDs {
			fmt.Println("removed", id)
		}
		freed += r.Freed
	}
	if freed > 0 {
		fmt.Println("freed", cli.HumanSize(freed))
	}
	return errors.Join(errs...)
}

func newPruneCommand(socket *string) *cobra.Command {
	var req imageservice.PruneRequest
	var output string
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove images that no container uses",
		Long: `Removes the images without a tag that no container uses: those whose tag has moved to a newer image, and those
that were pulled by digest. With --all it removes all images that no container uses; pods that are created later
pull theirs again.

Pinned images stay. The command does not ask for confirmation: try --dry-run first.`,
		Example: `  monopod image prune --all --dry-run
  monopod image prune --all`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withImages(*socket, func(c imageservice.Client) error {
				r, err := c.Prune(cmd.Context(), req)
				if err != nil {
					return err
				}
				if output == cli.AsJSON {
					return cli.PrintJSON(cmd.OutOrStdout(), r)
				}
				did, freed := "removed", "freed"
				if req.DryRun {
					did, freed = "would remove", "would free"
				}
				for _, img := range r.Images {
					name := "<none>"
					if names := append(append([]string{}, img.Tags...), img.Digests...); len(names) > 0 {
						name = names[0]
					}
					fmt.Println(did, shortID(img.ID, false), name)
				}
				fmt.Println(freed, cli.HumanSize(r.Freed))
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&req.All, "all", "a", false, "also remove images with tags")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "only show what would be removed")
	cli.FormatFlag(cmd, &output, cli.AsTable, cli.AsJSON)
	return cmd
}
