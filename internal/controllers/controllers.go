package controllers

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/accounttokens"
	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/controllers/certificates"
	"monopod.dev/monopod/internal/controllers/servicelb"
	"monopod.dev/monopod/internal/kit/iprange"
	"monopod.dev/monopod/internal/pods"
)

// userAgent is the role's name at the API server.
const userAgent = "monopod-controllers"

// Config is what the role needs.
type Config struct {
	// Kube reaches the API server, with the rights of all controllers that are chosen.
	Kube *rest.Config
	// Choice says which controllers run: names, "*" for all, "-NAME" for all but that one.
	Choice []string
	// Domain is that of the cluster's names; empty: cluster.local.
	Domain string
	// Authority signs certificates; nil: nobody here does.
	Authority certificates.Authority
	// Tokens makes the tokens of service accounts that secrets hold; nil: nobody here does.
	Tokens accounttokens.Issuer
	// Listens says which process of the nodes' machine listens at a port of it; nil: the nodes are other machines.
	Listens servicelb.Listens
	// OwnPorts are those at which a node serves itself, as far as they are known here; nil: none is.
	OwnPorts func(node string) []pods.OwnPort
	// Balancers are ranges of addresses that are load balancers'; none: these have those of the nodes.
	Balancers []iprange.Range
	// Settled is closed when the node has started. What nobody waits for meanwhile begins then; nil: at once.
	Settled <-chan struct{}
	// Election says how the controllers of several processes take turns; nil: these act at once.
	Election *Election
	// Beside is what else one process at a time does, as long as its controllers act and elected says so; nil: nothing.
	Beside func(ctx context.Context, elected func() bool) error
	// Log; nil: none.
	Log *slog.Logger
}

// Controllers are the controllers of a configuration.
type Controllers struct {
	config Config
	log    *slog.Logger
}

// New returns the controllers, which do nothing until they are run.
func New(config Config) *Controllers {
	log := config.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Controllers{config: config, log: log}
}

// Run runs the controllers until ctx ends, which is no error. It is called once, and when it returns nothing of the controllers is at work.
func (c *Controllers) Run(ctx context.Context) error {
	if c.config.Election != nil {
		return c.electedRun(ctx)
	}
	return c.act(ctx, nil)
}

// act runs the controllers until ctx ends. They begin with nothing, and keep nothing. fence holds back what they write; nil: nothing does.
func (c *Controllers) act(ctx context.Context, fence *fence) error {
	s, err := c.share(fence)
	if err != nil {
		return err
	}
	// Workers tell of their last object when ctx has ended already, so the broadcaster ends after them.
	s.events = record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	defer s.events.Shutdown()
	s.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.client.CoreV1().Events("")})

	running, runCtx := errgroup.WithContext(ctx)
	defer s.informers.Shutdown() // their context has ended then
	factories := factories()
	start := func(atOnce bool) error {
		for _, one := range catalog.All() {
			if one.AtOnce != atOnce || !catalog.Chosen(one.Name, c.config.Choice) {
				continue
			}
			made, err := factories[one.Name](s, c.log.With("controller", one.Name))
			if err != nil {
				return unlessOver(runCtx, fmt.Errorf("controller %s: %w", one.Name, err))
			}
			running.Go(func() error { return unlessOver(runCtx, made.Run(runCtx)) })
		}
		s.informers.StartWithContext(runCtx)
		return nil
	}
	if c.config.Beside != nil {
		running.Go(func() error { return unlessOver(runCtx, c.config.Beside(runCtx, fence.open)) })
	}
	running.Go(func() error {
		if err := start(true); err != nil {
			return err
		}
		if c.config.Settled != nil {
			select {
			case <-c.config.Settled:
			case <-runCtx.Done():
				return nil
			}
		}
		if err := start(false); err != nil {
			return err
		}
		<-runCtx.Done()
		return nil
	})
	return running.Wait()
}

// unlessOver is an error that came before the end. Who begins while all ends finds informers that have ended already, which is no fault of anybody.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runner works until its context ends, which is no error.
type runner interface {
	Run(ctx context.Context) error
}

// idle is a controller that has nothing to work with.
type idle struct{}

func (idle) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
