package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/image"
)

func buildImageCommand() *cli.Command {
	return &cli.Command{
		Name: "image", Usage: "make an image archive, for kin load image, whose root is a directory", ArgsUsage: "DIRECTORY FILE",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "name", Usage: "full `NAME` with tag; may be repeated", Required: true},
			&cli.StringFlag{Name: "entrypoint", Usage: "`PROGRAM` that a container runs"},
			&cli.StringFlag{Name: "command", Usage: "`ARGUMENT` for it where a pod gives none"},
		},
		Action: buildImage,
	}
}

func buildImage(c *cli.Context) (err error) {
	args, err := arguments(c, "DIRECTORY", "FILE")
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return fmt.Errorf("find %s: %w", args[0], err)
	}
	img := image.Image{
		Names: c.StringSlice("name"),
		Env:   []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	if text := c.String("entrypoint"); text != "" {
		img.Entrypoint = []string{text}
	}
	if text := c.String("command"); text != "" {
		img.Command = []string{text}
	}
	if img.Files, err = image.Tree(dir); err != nil {
		return err
	}
	file, err := os.Create(args[1])
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return image.Write(file, img)
}
