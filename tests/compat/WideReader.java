import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Reads all partitions of a topic until it has so many records, and prints their values. */
public class WideReader {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("auto.offset.reset", "earliest");
        int left = Integer.parseInt(args[3]);
        List<TopicPartition> partitions = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            partitions.add(new TopicPartition(args[1], i));
        }
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, text, text)) {
            consumer.assign(partitions);
            while (left > 0) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.value());
                    left--;
                }
            }
        }
    }
}
