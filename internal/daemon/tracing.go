package daemon

import (
	"context"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/telemetry/tracing"
)

// traces sends spans to a collector by OTLP over HTTP.
type traces struct {
	*tracing.Tracer
	provider *sdk.TracerProvider
}

// newTraces returns nil unless the environment names a collector, as OpenTelemetry has
// it: OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
func newTraces(ctx context.Context, a *app, cfg *config.Config, version, instance string, log *slog.Logger) (*traces, error) {
	named := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	if !named || os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil //nolint:nilnil // nothing is traced
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.LogAttrs(context.Background(), slog.LevelWarn, "cannot export traces", slog.Any("error", err))
	}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	of, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", cfg.Service), attribute.String("service.version", version),
		attribute.String("service.instance.id", instance), attribute.String("deployment.environment.name", cfg.Environment)), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(of))
	return &traces{tracing.New(p, tracing.WithChildren(a.tracesChildren)), p}, nil
}

// tracesChildren says whether an attempt of a queue is a child of its publish.
func (a *app) tracesChildren(queue string) bool {
	c := a.conf()
	return c != nil && orEmpty(c.Queues[queue]).Trace == config.TraceChild
}

// handler lets the attempts of a handler be spans, if there are traces.
func (t *traces) handler(h redrive.Handler) redrive.Handler {
	if t == nil {
		return h
	}
	return t.Handler(h)
}

// close sends what is left.
func (t *traces) close() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the error handler logs
}
