package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	genericadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"monopod.dev/monopod/internal/apiserver/authz"
	"monopod.dev/monopod/internal/apiserver/openapi"
	"monopod.dev/monopod/internal/apiserver/scheme"
)

// shutdownGrace bounds how long requests in flight may take, and watches to be told, when the server ends.
const shutdownGrace = 2 * time.Second

// build makes the HTTP side of the server: the library's, with what is not used here left out.
func (s *Server) build() error {
	tokens, err := s.tokens()
	if err != nil {
		return err
	}
	authorizer := authz.New()
	resources, err := s.list(tokens, authorizer)
	if err != nil {
		return err
	}
	set, err := s.open(resources)
	if err != nil {
		return err
	}

	config := genericapiserver.NewConfig(set.Codecs)
	config.EffectiveVersion = effectiveVersion{compatibility.DefaultBuildEffectiveVersion()}
	config.FeatureGate = utilfeature.DefaultFeatureGate
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", s.pki.CA)
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	if err := s.secure(config, clientCA); err != nil {
		return err
	}
	config.Authentication.Authenticator = group.NewAuthenticatedGroupAdder(
		union.New(x509.NewDynamic(clientCA.VerifyOptions, x509.CommonNameUserConversion), tokens))
	config.Authorization.Authorizer = authorizer
	config.AdmissionControl = genericadmission.NewChainHandler(s.admission()...)
	namer := apiopenapi.NewDefinitionNamer(set.Wire)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.Definitions, namer)
	config.OpenAPIConfig.Info.Title = "Monopod"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.Definitions, namer)
	config.OpenAPIV3Config.Info.Title = "Monopod"
	config.SkipOpenAPIInstallation = true // install does it, lazily

	// Requests of these take as long as they take.
	config.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch"), sets.NewString("attach", "exec", "log", "portforward"))
	config.RESTOptionsGetter = s.store
	s.drained = config.DrainedNotify()
	config.ShutdownWatchTerminationGracePeriod = shutdownGrace
	config.EnableProfiling = false
	config.StorageObjectCountTracker = nil // it serves priority and fairness, which is off
	// The library's own clients of itself (informers for plugins) are not used, but it insists on a configuration.
	config.LoopbackClientConfig = &rest.Config{Host: s.url()}
	config.AddHealthChecks(healthz.NamedCheck("etcd", s.checkStore))
	config.AddReadyzChecks(healthz.NamedCheck("startup", s.checkStarted))
	if err := config.AddPostStartHook("monopod-serving", func(genericapiserver.PostStartHookContext) error {
		close(s.serving)
		return nil
	}); err != nil {
		return err
	}
	return s.install(config.Complete(nil), set)
}

// install makes the generic server of its configuration and gives it the resources.
func (s *Server) install(config genericapiserver.CompletedConfig, set *scheme.Set) (err error) {
	if s.generic, err = config.New("monopod", genericapiserver.NewEmptyDelegate()); err != nil {
		return fmt.Errorf("make the API server: %w", err)
	}
	s.generic.ShutdownTimeout = shutdownGrace
	core, groups := s.groups(set)
	if err := s.generic.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, core); err != nil {
		return fmt.Errorf("install the core API: %w", err)
	}
	if err := s.generic.InstallAPIGroups(groups...); err != nil {
		return fmt.Errorf("install the API groups: %w", err)
	}
	// The models for server-side apply are made; whoever asks for the documents can have the definitions made again.
	config.OpenAPIV3Config.Definitions = nil
	if err := openapi.Install(s.generic.Handler.GoRestfulContainer, s.generic.Handler.NonGoRestfulMux,
		config.OpenAPIConfig, config.OpenAPIV3Config); err != nil {
		return fmt.Errorf("install OpenAPI: %w", err)
	}
	return nil
}

func (s *Server) secure(config *genericapiserver.Config, clientCA dynamiccertificates.CAContentProvider) error {
	cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", s.pki.Server.CertFile, s.pki.Server.KeyFile)
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	s.certificate = cert
	config.SecureServing = &genericapiserver.SecureServingInfo{Listener: s.listener, Cert: cert, ClientCA: clientCA}
	return nil
}

// tokens authenticates bearer tokens, in the Authorization header and, for browsers, in a WebSocket's subprotocol.
// Without a token file it knows nobody.
func (s *Server) tokens() (authenticator.Request, error) {
	if s.cfg.TokenAuthFile == "" {
		return union.New(), nil
	}
	tokens, err := tokenfile.NewCSV(s.cfg.TokenAuthFile)
	if err != nil {
		return nil, fmt.Errorf("token file %s: %w; its lines are token,user,uid,\"group1,group2\"", s.cfg.TokenAuthFile, err)
	}
	return union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens)), nil
}

// checkStore is healthy when etcd answers.
func (s *Server) checkStore(req *http.Request) error {
	ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
	defer cancel()
	_, err := s.etcd.Client().Get(ctx, "/registry/health")
	return err
}

// checkStarted is ready when Ready is.
func (s *Server) checkStarted(*http.Request) error {
	select {
	case <-s.ready:
		return nil
	default:
		return errors.New("the caches are not filled yet")
	}
}

// effectiveVersion reports the version of the Kubernetes API that is served.
type effectiveVersion struct {
	basecompatibility.MutableEffectiveVersion
}

// Info implements basecompatibility.EffectiveVersion. A build that does not set the library's version by linker flags
// has a placeholder there; the version of the library's module tells as much: k8s.io/apiserver v0.X.Y is Kubernetes
// 1.X.Y's.
func (v effectiveVersion) Info() *apimachineryversion.Info {
	info := v.MutableEffectiveVersion.Info()
	if info == nil {
		return nil
	}
	info.GitVersion = fmt.Sprintf("v%s.%s.0+monopod", info.Major, info.Minor)
	info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range build.Deps {
			if rest, ok := strings.CutPrefix(dep.Version, "v0."); ok && dep.Path == "k8s.io/apiserver" {
				info.GitVersion = "v1." + rest + "+monopod"
			}
		}
	}
	return info
}
